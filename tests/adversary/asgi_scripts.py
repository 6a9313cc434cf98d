"""Fifty thousand connections made up at random: through the tap, through tap and resumption, and as chats that come back.

With and without the middleware the client must hear the same and the application receive the same; every exception, every
complaint in the log and every lost event is a find. The tap asks the kernel through sockets that are sound or broken.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers.adversary import asked, report
from helpers.listening import BROKEN, asked_through
from helpers.resume_scripts import play
from omniwatch.tap.ear_thread import open_netlink

BATCH = 100
NETLINKS = [open_netlink, *(opens for fault, opens in BROKEN.items() if fault != "raises")]
"""An ear that raises complains in the log, as it should."""


def main() -> int:
    """Print the counts and what was found; 1 where anything was."""
    options = asked("scripts", int, 50_000, "how many, each played in three ways")
    found: Counter[str] = Counter()
    failures: list[str] = []
    end = options.seed + options.scripts
    with tempfile.TemporaryDirectory() as directory:
        for first in range(options.seed, end, BATCH):
            seeds = range(first, min(first + BATCH, end))
            with asked_through(NETLINKS[first // BATCH % len(NETLINKS)]) as within:
                failures += play(seeds, Path(directory), found, within, OMNIWATCH_EAR="kernel")
    return report(found, failures)


if __name__ == "__main__":
    sys.exit(main())
