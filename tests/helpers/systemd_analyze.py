"""systemd-analyze, as a test asks it about units in a tree of its own."""

from __future__ import annotations

import subprocess

import pytest


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it. Before 250 (Ubuntu 22.04) it knows no other tree and nothing that does not run: the test is skipped there."""
    said = _run("--help").stdout
    if "--offline" not in said:
        pytest.skip(
            "this systemd-analyze, before 250, judges only what runs on this machine; `make test-targets` has it do so"
        )
    return _run(*arguments)


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
