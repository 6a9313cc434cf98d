"""Install the uplink of a device in a fleet: its unit and its configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from omniwatch.bundle.installed_files import at
from omniwatch.bundle.program_files import InstallError, Item
from omniwatch.settings import Settings

UNIT = "omniwatch-uplink.service"
_UNITS = PurePosixPath("/etc/systemd/system")
_CONFIG = PurePosixPath("/etc/omniwatch")
_AGENTS = {
    "vmagent": ("/usr/bin/vmagent", "victoria-metrics", ("uplink.yml", "uplink-relabel.yml")),
    "prometheus": ("/usr/bin/prometheus", "prometheus", ("uplink-prometheus.yml",)),
}
"""Of each agent: its program, Debian's package that has it, and the configuration it reads."""
_LINK = _UNITS / "multi-user.target.wants" / UNIT
FILES = frozenset(
    [str(_UNITS / UNIT), str(_LINK), *(str(_CONFIG / name) for _, _, names in _AGENTS.values() for name in names)]
)  # fmt: skip
"""Every path that is the uplink's, whichever agent it has."""


def items(root: Path, config: Settings, files: Mapping[str, str]) -> list[Item]:
    """Return the uplink's files, of a rendered bundle by file name. Raises InstallError when it could not run."""
    fleet = config.fleet
    program, package, names = _AGENTS[fleet.agent]
    if not fleet.remote_write_url:
        raise InstallError(
            "/etc/omniwatch/omniwatch.yaml: fleet.remote_write_url is empty: an uplink needs a centre to send to"
        )
    if not os.path.lexists(at(root, PurePosixPath(program))):
        raise InstallError(
            f"{at(root, PurePosixPath(program))}: {fleet.agent} is not installed; "
            f"apt-get install --no-install-recommends {package} brings it"
        )
    for name in ("token_file", "ca_file"):
        path = getattr(fleet, name)
        if path and not os.path.lexists(at(root, PurePosixPath(path))):
            raise InstallError(f"{at(root, PurePosixPath(path))}: no such file; fleet.{name} names it")
    return [
        Item(_UNITS / UNIT, files[UNIT].encode(), kind="unit"),
        Item(_LINK, link=f"../{UNIT}", kind="unit"),
        *(Item(_CONFIG / name, files[name].encode(), kind="unit") for name in names),
    ]
