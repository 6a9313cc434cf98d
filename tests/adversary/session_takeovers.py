"""Realtime sessions that change hands, made up at random: no client ends, takes or crowds out another key's."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers.adversary import asked, report, seeds
from helpers.session_takeovers import play


def main() -> int:
    """Print the counts and what was found; 1 where anything was."""
    counts: Counter[str] = Counter()
    failures = [failure for seed in seeds(asked()) if (failure := play(seed, counts))]
    return report(counts, failures)


if __name__ == "__main__":
    sys.exit(main())
