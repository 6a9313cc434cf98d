"""Webhooks made up at random: refused in a line, or told by every robot without a call or a link that is not ours."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers.adversary import asked, report, seeds
from helpers.hostile_webhooks import play


def main() -> int:
    """Print the counts and what was found; 1 where anything was."""
    counts: Counter[str] = Counter()
    plays = (play(seed, counts) for seed in seeds(asked()))
    failures = [failure for failure in plays if failure]
    return report(counts, failures)


if __name__ == "__main__":
    sys.exit(main())
