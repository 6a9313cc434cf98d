"""Hostile settings: an accepted set renders within bounds, is read by its consumers, and says what was set."""

from __future__ import annotations

import resource
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as hypothesis

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers.adversary import asked, report, seeds
from helpers.hostile_settings import consume, hostile
from omniwatch.bundle import check
from omniwatch.settings import Settings

MEMORY_BYTES = 2 << 30
RENDER_S = 60.0
BATCH = 50
"""Sets of one seed."""
BY_TOOLS = 100
"""Every so many sets are given to promtool and amtool, too: that takes seconds each."""


def main() -> int:
    """Print the counts and what was found; 1 where anything was."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    counts: Counter[str] = Counter()
    failures: list[str] = []

    @hypothesis(
        deadline=None,
        database=None,
        max_examples=BATCH,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate,),
    )
    @given(hostile())
    def attack(found: tuple[Settings, int, int]) -> None:
        settings, accepted, refused = found
        counts.update(sets=1, accepted=accepted, refused=refused)
        began = time.process_time()
        try:
            files = consume(settings)
            assert time.process_time() - began < RENDER_S, "rendered for more than a minute"
            if counts["sets"] % BY_TOOLS == 1:
                results = check.check_files(files, unit_tests=False, whole=False)
                counts["sets given to promtool and amtool"] += 1
                assert [str(result) for result in results if result.status is check.Status.FAILED] == []
        except Exception as error:
            failures.append(
                f"{type(error).__name__}: {str(error)[:300]}\n{traceback.format_exc(limit=-2)}\n{settings}"
            )

    for number in seeds(asked()):
        seed(number)(attack)()
    return report(counts, failures, shown=5)


if __name__ == "__main__":
    sys.exit(main())
