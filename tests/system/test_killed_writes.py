"""What is killed at a write is ended by the second run, which leaves nothing stray; two at once are refused in a line."""

from __future__ import annotations

import fcntl
import os
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.killed_prerm import Removal
from helpers.killed_writes import DROPINS, KINDS, UNIT, Scene
from helpers.trees import grow
from omniwatch.cli import main
from omniwatch.sidecar import state_lock
from omniwatch.system import leftovers
from omniwatch.tune import dropin
from omniwatch.tune.model import Limit

SHARE = 4
"""Writes of each kind that are tried here, by a seed; `make adversary` tries every one."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, "prerm"])
def test_the_second_run_ends_what_was_killed_at_a_write(tmp_path: Path, kind: str) -> None:
    scene = Removal(tmp_path) if kind == "prerm" else Scene(kind, tmp_path)
    seed = random.randrange(1 << 30)
    numbers = random.Random(seed).sample(range(1, scene.writes + 1), min(SHARE, scene.writes))
    found = {number: scene.play(number) for number in numbers}
    assert not any(found.values()), f"seed {seed}: {found}"


def test_a_second_tune_at_the_same_time_is_refused_in_a_line(tmp_path: Path) -> None:
    text = dropin.text(UNIT, Limit(None), 900, None)
    target = dropin.apply(UNIT, text, lambda: None, tmp_path)
    opened = os.open(target.parent, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        for again in (
            lambda: dropin.apply(UNIT, text, lambda: None, tmp_path),
            lambda: dropin.revert(UNIT, lambda: None, tmp_path),
        ):
            with pytest.raises(dropin.DropinError, match="another `omniwatch tune` is at work here"):
                again()
    finally:
        os.close(opened)
    assert target.read_text() == text
    assert dropin.revert(UNIT, lambda: None, tmp_path) == target
    assert not (tmp_path / DROPINS).exists()


def test_what_a_person_changed_since_is_left_alone(tmp_path: Path) -> None:
    """It is not taken for what an earlier revert put back."""
    grow(tmp_path, f"{DROPINS}/50-cpu.conf: [Service]\\nCPUQuota=80%")
    target = dropin.apply(UNIT, dropin.text(UNIT, Limit(None), 900, None), lambda: None, tmp_path)
    target.write_text("[Service]\nCPUQuota=70%\n")
    with pytest.raises(dropin.DropinError, match="leaves it alone"):
        dropin.revert(UNIT, lambda: None, tmp_path)
    assert target.read_text() == "[Service]\nCPUQuota=70%\n"


def test_a_second_bridge_on_the_same_messages_is_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "omniwatch.yaml").write_text(
        f"notify: {{listen_address: '127.0.0.1:0', robots: [{{kind: feishu, url_file: {tmp_path}/url}}]}}"
    )
    held = state_lock.hold(tmp_path)
    try:
        done = CliRunner().invoke(
            main, ["notify", f"--config.file={tmp_path}/omniwatch.yaml", f"--state-dir={tmp_path}"]
        )
    finally:
        os.close(held)
    assert done.exit_code == 2
    assert (
        done.stderr == f"Error: {tmp_path}: in use by process {os.getpid()}; give each its own --state-dir\n"
    )


def test_only_what_was_staged_for_the_file_is_removed(tmp_path: Path) -> None:
    grow(tmp_path, ".checkpoint.12: a\n.checkpoint.mine: b\n.other.12: c\ncheckpoint.12: d\ncheckpoint: e")
    leftovers.remove(tmp_path / "checkpoint")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".checkpoint.mine",
        ".other.12",
        "checkpoint",
        "checkpoint.12",
    ]
    leftovers.remove(tmp_path / "absent" / "checkpoint")
