"""tune, the checkpoint, the history, the bridge's queue and the package's prerm, each killed at every one of its writes."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers.adversary import asked, report
from helpers.killed_prerm import Removal
from helpers.killed_writes import KINDS, Scene


def main() -> int:
    """Print the counts and what was found; 1 where anything was."""
    options = asked()
    counts: Counter[str] = Counter()
    failures: list[str] = []
    for kind in (*KINDS, "prerm"):
        with tempfile.TemporaryDirectory() as directory:
            scene = Removal(Path(directory)) if kind == "prerm" else Scene(kind, Path(directory))
            for number in range(1 + options.seed % options.every, scene.writes + 1, options.every):
                counts[kind] += 1
                if wrong := scene.play(number):
                    failures.append(f"{kind} killed at write {number} of {scene.writes}: {wrong}")
    return report(counts, failures)


if __name__ == "__main__":
    sys.exit(main())
