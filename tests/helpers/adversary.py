"""What all attacks made up at random share: their minutes, the seed they begin with, and how they say what they found."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

MINUTES = {
    "asgi_scripts": 10,
    "broken_certificates": 2,
    "broken_web_files": 3,
    "damaged_journals": 8,
    "hostile_settings": 8,
    "hostile_webhooks": 3,
    "killed_slices": 2,
    "linked_images": 4,
    "planted_secrets": 1,
    "resume_races": 10,
    "session_takeovers": 3,
}
"""How long each attack goes on. A slower machine plays less in them."""
WHOLE = {"killed_installations": 5, "killed_writes": 1}
"""Attacks that try every write once, and about how many minutes that takes."""


class Options(argparse.Namespace):
    """What the command line asks for."""

    seed: int
    minutes: float
    every: int


def asked() -> Options:
    """Read the command line: how much, from which seed on. The seed is printed, so that a find can be repeated."""
    name = Path(sys.argv[0]).stem
    parser = argparse.ArgumentParser()
    if name in WHOLE:
        parser.add_argument(
            "--every", type=int, default=1, help="every how many writes; with more than 1 the seed says which"
        )
    else:
        parser.add_argument("--minutes", type=float, default=MINUTES[name], help="how long")
    parser.add_argument(
        "--seed",
        type=int,
        default=random.randrange(1 << 30),
        help="the first seed, as an earlier run printed it",
    )
    options = parser.parse_args(namespace=Options())
    print(f"seeds from {options.seed} on", flush=True)
    return options


def seeds(options: Options, step: int = 1) -> Iterator[int]:
    """Yield every so many seeds the next one until the minutes are over, the first one in any case."""
    until = time.monotonic() + options.minutes * 60
    seed = options.seed
    yield seed
    while time.monotonic() < until:
        seed += step
        yield seed


def report(counts: Mapping[str, int], failures: Sequence[str], shown: int = 20) -> int:
    """Print the counts and the first failures; 1 where there is any."""
    width = max(map(len, counts), default=0) + 2
    for name, count in sorted(counts.items()):
        print(f"{name:{width}}{count:>10,}")
    print(f"{'found':{width}}{len(failures):>10,}")
    for failure in failures[:shown]:
        print(f"  {failure}")
    return bool(failures)
