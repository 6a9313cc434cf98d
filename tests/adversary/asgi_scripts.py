"""Connections made up at random: through the tap, through tap and resumption, and as chats that come back.

With and without the middleware the client must hear the same and the application receive the same; every exception, every
complaint in the log and every lost event is a find. The tap asks the kernel through sockets that are sound or broken.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers.adversary import asked, report, seeds
from helpers.listening import BROKEN, asked_through
from helpers.resume_scripts import play
from omniwatch.tap.ear_thread import open_netlink

BATCH = 100
NETLINKS = [open_netlink, *(opens for fault, opens in BROKEN.items() if fault != "raises")]
"""An ear that raises complains in the log, as it should."""


def main() -> int:
    """Print the counts and what was found; 1 where anything was."""
    found: Counter[str] = Counter()
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        for first in seeds(asked(), BATCH):
            with asked_through(NETLINKS[first // BATCH % len(NETLINKS)]) as within:
                batch = range(first, first + BATCH)
                failures += play(batch, Path(directory), found, within, OMNIWATCH_EAR="kernel")
    return report(found, failures)


if __name__ == "__main__":
    sys.exit(main())
