"""Fifty thousand connections made up at random: through the tap, through tap and resumption, and as chats that come back.

With and without the middleware the client must hear the same and the application receive the same; every exception, every
complaint in the log and every lost event is a find.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers.resume_scripts import play

BATCH = 100


def main() -> int:
    """Print the counts and what was found; 1 where anything was."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--scripts", type=int, default=50_000, help="how many, each played in three ways")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="the first; as printed")
    options = parser.parse_args()
    print(f"seeds from {options.seed} on")
    found: Counter[str] = Counter()
    failures: list[str] = []
    end = options.seed + options.scripts
    with tempfile.TemporaryDirectory() as directory:
        for first in range(options.seed, end, BATCH):
            failures += play(range(first, min(first + BATCH, end)), Path(directory), found)
    for name, count in sorted(found.items()):
        print(f"{name:24}{count:>10,}")
    print(f"{'found':24}{len(failures):>10,}")
    for failure in failures[:20]:
        print(f"  {failure}")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
