"""Ten minutes of races for a turn: resume, retransmit, realign, hang up, leave, all at once, with right and wrong keys.

Held at every step: never two readers, frames in their order and whole, nothing granted without the key, nothing after a
hang-up, memory within its bounds, and nothing held or running when all have gone.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers.resume_races import play


def main() -> int:
    """Print the counts and what was found; 1 where anything was."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600.0, help="how long")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="the first; as printed")
    options = parser.parse_args()
    print(f"seeds from {options.seed} on")
    logging.getLogger("omniwatch").setLevel(logging.CRITICAL)
    counts: Counter[str] = Counter()
    failures: list[str] = []
    seed, until = options.seed, time.monotonic() + options.seconds
    while time.monotonic() < until:
        failure = play(seed, counts)
        failures += [failure] if failure else []
        seed += 1
    for name, count in sorted(counts.items()):
        print(f"{name:24}{count:>10,}")
    print(f"{'found':24}{len(failures):>10,}")
    for failure in failures[:20]:
        print(f"  {failure}")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
