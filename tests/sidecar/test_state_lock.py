"""Two sidecars on one state directory: the second is refused, and told who holds it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from omniwatch.sidecar import state_lock


def test_a_second_holder_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    fd = state_lock.hold(tmp_path)
    with pytest.raises(state_lock.HeldError, match=f"in use by process {os.getpid()}"):
        state_lock.hold(tmp_path)
    os.close(fd)
    os.close(state_lock.hold(tmp_path))


def test_the_command_says_who_holds_the_directory_and_exits_2(tmp_path: Path) -> None:
    fd = state_lock.hold(tmp_path)
    argv = [
        "exporter",
        str(tmp_path / "e.jsonl"),
        "--state-dir",
        str(tmp_path),
        "--web.listen-address",
        "127.0.0.1:0",
    ]
    ran = subprocess.run(
        [sys.executable, "-m", "omniwatch", *argv], check=False, capture_output=True, text=True, timeout=120
    )
    os.close(fd)
    assert ran.returncode == 2
    assert re.search(rf"{re.escape(str(tmp_path))}.*process {os.getpid()}", ran.stderr)
    assert ran.stderr.count("\n") == 1
