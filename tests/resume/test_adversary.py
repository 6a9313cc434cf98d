"""A little of what `make adversary` plays for long: made-up chats that come back, and races for a turn."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from helpers import resume_races, resume_scripts

pytestmark = pytest.mark.slow

SCRIPTS = 60
WORLDS = 25


def test_made_up_chats_are_heard_as_without_the_middleware(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    assert resume_scripts.play(range(SCRIPTS), tmp_path, counts) == []
    assert counts["in frames"] > SCRIPTS / 3
    assert counts["connections"] > counts["in frames"]
    assert counts["junk"] > SCRIPTS


def test_races_for_a_turn_break_nothing() -> None:
    counts: Counter[str] = Counter()
    assert [failure for seed in range(WORLDS) if (failure := resume_races.play(seed, counts))] == []
    assert counts["resume 206"] + counts["resume 200"] > WORLDS
    assert counts["resume 404"] > WORLDS
    assert counts["hang-up 204"] > 0
