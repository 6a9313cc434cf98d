"""File trees with links at every component, made up at random, and images of which each component in turn is a link out of them.

A tree is asked and changed twice: below a root, and by a child whose root it is. Both must see and do the same, and an image's links
must lead neither install, status, tune nor uninstall out of it.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers.adversary import asked, report, seeds
from helpers.linked_images import Scene
from helpers.linked_trees import by_hand, compare


def main() -> int:
    """Print the counts and what was found; 1 where anything was."""
    options = asked()
    counts: Counter[str] = Counter()
    failures: list[str] = []
    for seed in seeds(options):
        for name, way in (("by the kernel", nullcontext), ("component by component", by_hand)):
            with tempfile.TemporaryDirectory() as directory, way():
                counts[f"trees {name}"] += 1
                if wrong := compare(Path(directory), seed):
                    failures.append(f"seed {seed}, {name}: {wrong}")
    with tempfile.TemporaryDirectory() as directory:
        scene, dice = Scene(Path(directory)), random.Random(options.seed)
        for component in scene.components:
            counts["images"] += 1
            if wrong := scene.play(component, dice):
                failures.append(wrong)
    return report(counts, failures)


if __name__ == "__main__":
    sys.exit(main())
