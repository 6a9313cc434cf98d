"""Secrets planted in lines of a log, as programs write them: how many, in how many shapes, does `omniwatch doctor` tell?"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers.adversary import asked, report, seeds
from helpers.planted_secrets import of_seed, shapes, survivors


def main() -> int:
    """Print the counts and what survived; 1 where anything did."""
    counts: Counter[str] = Counter()
    told: Counter[int] = Counter()
    examples: dict[int, str] = {}
    for seed in seeds(asked()):
        plant = of_seed(seed)
        counts["shapes"] = len(shapes(plant))
        counts["secrets"] += len(plant.secrets)
        for number, line, _ in survivors(seed):
            told[number] += 1
            examples.setdefault(number, line)
    return report(
        counts, [f"told {count} times: {examples[number]!r}" for number, count in told.most_common()]
    )


if __name__ == "__main__":
    sys.exit(main())
