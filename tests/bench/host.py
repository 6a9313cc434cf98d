"""What the host readers cost a scrape on a tree laid out as an AGX Orin's, against only opening and reading its files.

python tests/bench/host.py [SCRAPES]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
BOUND_MS = 3.0


def timed_ms(work: Callable[[], object], rounds: int) -> list[float]:
    """How long each of so many rounds took, shortest first."""
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        times.append((time.perf_counter() - begun) * 1000)
    return sorted(times)


def main(scrapes: int) -> int:
    """Print the table; 1 where the readers cost more than the bound at the median of any release."""
    sys.path.insert(0, str(TESTS))
    from prometheus_client.core import Metric

    from helpers.cgroup_trees import V1, V2
    from helpers.trees import grow
    from omniwatch.host import cgroup, jetson, memory
    from omniwatch.settings import Settings

    print(
        f"{'tree':<10} {'families':>8} {'files':>6} {'median ms':>10} {'p99 ms':>8} {'only read ms':>13} {'ratio':>6}"
    )
    over = False
    for release, groups in ((5, V1), (6, V2), (7, V2)):
        with tempfile.TemporaryDirectory() as directory:
            root = grow(Path(directory), groups)
            grow(root, (TESTS / f"data/jetson/jetpack{release}.tree").read_text(encoding="utf-8"))
            readers = [module.Reader(Settings(), root) for module in (cgroup, jetson, memory)]

            def scrape(readers: list[object] = readers) -> list[Metric]:
                return [family for reader in readers for family in reader.collect()]

            files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]

            def only_read(files: list[Path] = files) -> None:
                for path in files:
                    path.read_bytes()

            families = len(scrape())
            times, floor = timed_ms(scrape, scrapes), timed_ms(only_read, scrapes)
        median, p99 = statistics.median(times), times[int(len(times) * 0.99)]
        low = statistics.median(floor)
        print(
            f"JetPack {release}  {families:>8} {len(files):>6} {median:>10.2f} {p99:>8.2f}"
            f" {low:>13.2f} {median / low:>6.2f}"
        )
        over |= median > BOUND_MS
    print(f"bound: {BOUND_MS} ms a scrape at the median{': EXCEEDED' if over else ''}")
    return int(over)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 300))
