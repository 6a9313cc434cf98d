"""Races for a turn: resume, retransmit, realign, hang up, leave, all at once, with right and wrong keys.

Held at every step: never two readers, frames in their order and whole, nothing granted without the key, nothing after a
hang-up, memory within its bounds, and nothing held or running when all have gone.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers.adversary import asked, report, seeds
from helpers.resume_races import play


def main() -> int:
    """Print the counts and what was found; 1 where anything was."""
    logging.getLogger("omniwatch").setLevel(logging.CRITICAL)
    counts: Counter[str] = Counter()
    failures: list[str] = []
    for seed in seeds(asked()):
        failure = play(seed, counts)
        failures += [failure] if failure else []
    return report(counts, failures)


if __name__ == "__main__":
    sys.exit(main())
