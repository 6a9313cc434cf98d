"""The oldest supported versions of Prometheus, Alertmanager and vmalert; docs/paging.md lists them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from typing import NamedTuple

SAY_TIMEOUT_S = 20.0


class Least(NamedTuple):
    """A program that says its own version, which stands for what it belongs to."""

    program: str
    what: str
    version: tuple[int, int]


LEAST = (
    Least("promtool", "Prometheus", (2, 31)),
    Least("amtool", "Alertmanager", (0, 23)),
    Least("vmalert", "vmalert", (1, 79)),
)
"""Ubuntu 22.04's, as JetPack 6 has them, and Debian 12's VictoriaMetrics."""
_VERSION = re.compile(r"(?:version |v)(\d+)\.(\d+)")


def too_old(least: Least, words: str) -> str:
    """Return what is wrong with a program that says these words of its version; "" where it is new enough or says none."""
    found = _VERSION.search(words)
    if found is None or (int(found[1]), int(found[2])) >= least.version:
        return ""
    return f"{least.what} {found[1]}.{found[2]} is too old: at least {'.'.join(map(str, least.version))} is needed"


def installed(find: Callable[[str], str | None]) -> Iterator[tuple[Least, str]]:
    """Ask each of those programs that is found for its version: yields what is wrong with it, "" where nothing is."""
    for least in LEAST:
        program = find(least.program)
        if program is None:
            continue
        try:
            done = subprocess.run(
                [program, "--version"], capture_output=True, text=True, timeout=SAY_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            yield least, f"{program}: {error}"
        else:
            yield least, too_old(least, done.stdout + done.stderr)
