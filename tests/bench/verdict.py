"""How often the verdict of `omniwatch explain` is right, on incidents made by physics: the figures of docs/incidents.md.

No limit of a verdict was tuned on these seeds. Printed are the sums, the confusion matrix, and each error. Faults that no evidence of
a server shows stand apart.

python tests/bench/verdict.py [INCIDENTS [UNSEEN]]
"""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
FIRST_SEED = 2000
INCIDENTS = 2000
UNSEEN = 300


def main(count: int = INCIDENTS, unseen: int = UNSEEN) -> None:
    """Print the tally of so many incidents, and of so many that no evidence shows."""
    from helpers.verdict_accuracy import judge_incidents

    seeds = range(FIRST_SEED, FIRST_SEED + count)
    print(judge_incidents(seeds, range(FIRST_SEED, FIRST_SEED + unseen)).table())


if __name__ == "__main__":
    sys.path.insert(0, str(TESTS))
    main(*map(int, sys.argv[1:]))
