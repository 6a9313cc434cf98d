"""Web configurations broken at random under a reader that watches them: one line, and the old one goes on."""

from __future__ import annotations

import logging
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers.adversary import asked, report, seeds
from helpers.broken_web_files import Scene
from helpers.web_files import Site


def main() -> int:
    """Print the counts and what was found; 1 where anything was."""
    logging.getLogger("omniwatch").setLevel(logging.CRITICAL)
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory:
        scene = Scene(Site(Path(directory)))
        plays = (scene.play(seed, counts) for seed in seeds(asked()))
        failures = [failure for failure in plays if failure]
    return report(counts, failures)


if __name__ == "__main__":
    sys.exit(main())
