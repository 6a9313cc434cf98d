"""The parts of this package that `install` brings only where the settings ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from omniwatch.system import places

PACKAGE = Path(__file__).parents[1]
ELSEWHERE = "run `omniwatch install` in the environment that omniwatch was installed from"


class Part(NamedTuple):
    """One part: a folder of the package. It is found by its path: no import of what every device has leads into it."""

    folder: str
    setting: str
    """What asks for it as soon as it is neither false nor empty."""
    what: str
    how: str
    """What to write into the settings."""
    group: str = ""
    """The group whose commands the part's folder `cli` adds to; "" for `omniwatch` itself."""
    commands: tuple[str, ...] = ()
    stays: str = ""
    """Name of a file that every device has of it."""

    def has(self, name: str) -> bool:
        """Whether a file, by its path below the package, is of this part."""
        return name.startswith(f"{self.folder}/") and name != f"{self.folder}/{self.stays}"

    def is_wanted(self, settings: Any) -> bool:
        """Whether these settings ask for the part."""
        return bool(attrgetter(self.setting)(settings))

    def is_here(self) -> bool:
        """Whether the running program has the part."""
        return any(path.name != self.stays for path in (PACKAGE / self.folder).glob("*.py"))

    def absence(self) -> str:
        """Say how a machine without the part gets it."""
        return f"this machine lacks {self.what}: {self.how} in {places.CONFIG}, and {ELSEWHERE}"


CENTRE = Part(
    "centre",
    "fleet.centre",
    "the commands of a fleet's centre",
    "set `fleet: {centre: true}`",
    group="fleet",
    commands=("serve", "status", "targets"),
)
NOTIFY = Part(
    "notify",
    "notify.robots",
    "the bridge to chat robots",
    "name a robot in `notify.robots`",
    commands=("notify",),
)
RESUME = Part(
    "resume",
    "resume.middleware",
    "resumption",
    "set `resume: {middleware: true}`",
    # What a model server imports: it says what is missing.
    stays="__init__.py",
)
TABLE = (CENTRE, NOTIFY, RESUME)


def lacking(settings: Any) -> Iterator[str]:
    """Yield a line for each part that these settings ask for and the running program lacks."""
    for part in TABLE:
        if part.is_wanted(settings) and not part.is_here():
            yield f"{part.setting}: the running program lacks {part.what}: {ELSEWHERE}"
