"""Secrets planted in lines of a log, as programs write them: how many, in how many shapes, does `omniwatch doctor` tell?"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers.planted_secrets import of_seed, shapes, survivors


def main() -> int:
    """Print the counts and what survived; 1 where anything did."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=100, help="how often each shape is planted")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="the first; as printed")
    options = parser.parse_args()
    print(f"seeds from {options.seed} on")
    told: Counter[int] = Counter()
    examples: dict[int, str] = {}
    planted = 0
    for seed in range(options.seed, options.seed + options.rounds):
        plant = of_seed(seed)
        kinds = len(shapes(plant))
        planted += len(plant.secrets)
        for number, line, _ in survivors(seed):
            told[number] += 1
            examples.setdefault(number, line)
    print(f"{planted:,} secrets in {kinds} shapes, {told.total()} told, of {len(told)} shapes")
    for number, count in told.most_common():
        print(f"  {count:>5}  {examples[number]!r}")
    return bool(told)


if __name__ == "__main__":
    sys.exit(main())
