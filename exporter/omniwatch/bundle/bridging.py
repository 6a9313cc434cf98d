"""Install the unit of the bridge to chat robots, where the settings name a robot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from omniwatch.bundle.program_files import Item
from omniwatch.settings import Settings

UNIT = "omniwatch-notify.service"
_UNITS = PurePosixPath("/etc/systemd/system")
_WANTS = _UNITS / "multi-user.target.wants" / UNIT
FILES = (str(_UNITS / UNIT), str(_WANTS))


def items(config: Settings, files: Mapping[str, str]) -> list[Item]:
    """The unit, enabled; nothing where there is nobody to carry messages to."""
    if not config.notify.robots:
        return []
    return [
        Item(_UNITS / UNIT, files[UNIT].encode(), kind="unit"),
        Item(_WANTS, link=f"../{UNIT}", kind="unit"),
    ]
