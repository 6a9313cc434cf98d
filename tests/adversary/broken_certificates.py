"""Certificates with bytes changed at random: what `cryptography` takes has the same date of expiry with us."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers.adversary import asked, report, seeds
from helpers.broken_certificates import play, whole


def main() -> int:
    """Print the counts and what was found; 1 where anything was."""
    counts: Counter[str] = Counter()
    certificates = whole()
    plays = (play(seed, certificates, counts) for seed in seeds(asked()))
    failures = [failure for failure in plays if failure]
    return report(counts, failures)


if __name__ == "__main__":
    sys.exit(main())
