"""`omniwatch slice apply`, killed at random bytes and changes of the disk, and run again until OUT is there."""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers import slices
from helpers.adversary import asked, report, seeds
from helpers.killed_slices import Scene


def main() -> int:
    """Print the counts and what was found; 1 where anything was."""
    options = asked()
    counts: Counter[str] = Counter()
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        scenes = {
            layout: Scene(Path(directory) / layout.replace(" ", "-"), layout) for layout in slices.LAYOUTS
        }
        for seed in seeds(options):
            layout = slices.LAYOUTS[seed % len(slices.LAYOUTS)]
            kills, wrong = scenes[layout].play(random.Random(seed))
            counts[layout] += kills
            if wrong:
                failures.append(f"{layout}, seed {seed}: {wrong}")
    return report(counts, failures)


if __name__ == "__main__":
    sys.exit(main())
