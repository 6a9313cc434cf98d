"""What all attacks made up at random share: the seed they begin with, and how they say what they found."""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Mapping, Sequence


def asked(name: str, kind: Callable[[str], int | float], default: float, says: str) -> argparse.Namespace:
    """Read the command line: how much (`--NAME`), from which seed on. The seed is printed, so that a find can be repeated."""
    parser = argparse.ArgumentParser()
    parser.add_argument(f"--{name}", type=kind, default=default, help=says)
    parser.add_argument(
        "--seed",
        type=int,
        default=random.randrange(1 << 30),
        help="the first seed, as an earlier run printed it",
    )
    options = parser.parse_args()
    print(f"seeds from {options.seed} on")
    return options


def report(counts: Mapping[str, int], failures: Sequence[str], shown: int = 20) -> int:
    """Print the counts and the first failures; 1 where there is any."""
    width = max(map(len, counts), default=0) + 2
    for name, count in sorted(counts.items()):
        print(f"{name:{width}}{count:>10,}")
    print(f"{'found':{width}}{len(failures):>10,}")
    for failure in failures[:shown]:
        print(f"  {failure}")
    return bool(failures)
