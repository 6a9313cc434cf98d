"""Programs that a bare machine lacks, out of sight: only a test with the marker `programs` finds them on its PATH."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

BEYOND_PYTHON = frozenset(
    (
        *("prometheus", "promtool", "prometheus-alertmanager", "alertmanager", "amtool"),
        *("victoria-metrics", "vmagent", "vmalert", "chromium", "g++", "gcc", "cc", "c++", "localedef"),
        *("curl", "ps", "ss", "ip", "kubectl", "pgrep", "pkill", "free", "top"),
        *("systemctl", "systemd-analyze", "systemd-nspawn", "journalctl", "dbus-daemon", "groff"),
    )
)
"""Of the Debian packages that `make test` installs, and of systemd."""


def path_without(names: Collection[str], path: str, directory: Path) -> str:
    """Return a PATH that finds what `path` finds, but for these names; its directories are made below `directory`."""
    places: list[str] = []
    for place in dict.fromkeys(Path(one).resolve() for one in path.split(":") if one):
        if not any((place / name).exists() for name in names):
            places.append(str(place))
            continue
        links = directory / str(len(places))
        links.mkdir(parents=True)
        for program in place.iterdir():
            if program.name not in names:
                (links / program.name).symlink_to(program)
        places.append(str(links))
    return ":".join(places)
