"""All unit tests of a device's rules, on the rules as a cluster has them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from helpers.clusters import EVERY_SETTINGS, unrolled
from omniwatch.settings import Settings


@pytest.mark.parametrize("settings", EVERY_SETTINGS.values(), ids=EVERY_SETTINGS)
def test_every_unit_test_passes(tmp_path: Path, settings: Settings) -> None:
    unrolled(tmp_path, settings)
    files = sorted(path.name for path in tmp_path.glob("alerts/*.test.yaml"))
    assert {"streaming.test.yaml", "server.test.yaml"} <= set(files)
    done = subprocess.run(
        ["promtool", "test", "rules", *files],
        cwd=tmp_path / "alerts",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
