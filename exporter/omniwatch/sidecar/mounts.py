"""Say what a container lacks of its host, and what that costs: docs/container.md has the same list."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from omniwatch.sources import SourceError, is_pattern
from omniwatch.sources.spec import path_of

IN_IMAGE = "OMNIWATCH_IMAGE"
"""Environment variable that our image sets. A machine that is a container itself has it not."""
SERVICES = "system.slice"
"""A group that every host with systemd has, and the tree of a container's own has not."""


def refuse(sources: Iterable[str]) -> None:
    """Raise SourceError for a source that no mount can bring."""
    for spec in sources:
        if spec.startswith("journal:") and shutil.which("journalctl") is None:
            raise SourceError(
                f"{spec}: this container has no journalctl; mount the spool and follow tail:PATH"
            )


def missing(sources: Iterable[str], state_dir: Path | None, root: Path = Path("/")) -> Iterator[str]:
    """Yield a line for each mount that is not there: what it is, what it costs, and the flag that brings it."""
    for folder in dict.fromkeys(Path(path).parent for path in _paths(sources)):
        if not folder.is_dir():
            yield f"{folder} is missing, so no events are read: -v {folder}:{folder}:ro"
        elif not os.access(folder, os.R_OK | os.X_OK):
            yield f"{folder} is not readable, so no events are read: --group-add {folder.stat().st_gid}"
    if state_dir is None:
        yield "no directory for state can be written, so counters start over: -v omniwatch-state:/var/lib/omniwatch"
    groups = root / "sys/fs/cgroup"
    if not (groups / SERVICES).exists() and not any(groups.glob(f"*/{SERVICES}")):
        yield "the host's cgroups are hidden, so no CPU limits are seen: -v /sys/fs/cgroup:/sys/fs/cgroup:ro"
    if not (root / "run/dbus/system_bus_socket").exists():
        yield "the system bus is hidden, so no restarts are seen: -v /run/dbus/system_bus_socket:/run/dbus/system_bus_socket"


def _paths(sources: Iterable[str]) -> Iterator[str]:
    """Yield the path of each file that is followed; a pattern has to be searched from its last plain folder on."""
    for spec in sources:
        path = path_of(spec)
        if path is None:
            continue
        while is_pattern(str(Path(path).parent)):
            path = str(Path(path).parent)
        yield path
