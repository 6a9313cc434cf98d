"""A little of what `make adversary` breaks for long: web configurations under a reader that watches them."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from helpers.broken_web_files import Scene
from helpers.web_files import Site

SHARE = 200


def test_files_broken_at_random_are_refused_in_a_line_and_the_old_one_goes_on(tmp_path: Path) -> None:
    scene = Scene(Site(tmp_path))
    seed = random.randrange(1 << 30)
    counts: Counter[str] = Counter()
    assert [wrong for number in range(seed, seed + SHARE) if (wrong := scene.play(number, counts))] == []
    assert counts["refused"] > SHARE / 2
