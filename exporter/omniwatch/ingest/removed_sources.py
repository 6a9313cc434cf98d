"""Remember the positions of sources that the settings no longer name.

A source that is respelled (a pattern in place of a path, a link, a unit's short name) then resumes where reading stopped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from omniwatch.ingest.intake import Intake, Saved
from omniwatch.ingest.sequence import MAX_WRITERS
from omniwatch.sources import is_pattern

MAX_PLACES = 64
"""Positions remembered; the oldest are dropped."""


class RemovedSources(msgspec.Struct):
    """Positions of removed sources, so that no event is counted twice when one returns under another name.

    `places` maps a resolved path or a unit to its position; `writers` maps a writer to its next number.
    """

    places: dict[str, dict[str, Any]] = {}
    writers: dict[str, int] = {}

    def keep(self, name: str, saved: Saved) -> None:
        """Remember the position of a source that is being removed."""
        for place, position in _by_place(name, saved.position).items():
            self.places.pop(place, None)
            self.places[place] = position
        for writer, number in saved.sequence.writers.items():
            self.writers[writer] = max(number, self.writers.pop(writer, 0))

    def hand_over(self, intakes: Iterable[Intake]) -> None:
        """Restore new sources to the positions of their files and units. Raises SourceError for an invalid position."""
        taken: set[str] = set()
        for intake in intakes:
            mine = _own(intake.name, self.places)
            if mine:
                intake.source.restore(_position(intake.name, mine, self.places))
            intake.sequence.others.update(self.writers)
            taken.update(mine)
        kept = [place for place in self.places if place not in taken][-MAX_PLACES:]
        self.places = {place: self.places[place] for place in kept}
        self.writers = dict(list(self.writers.items())[-MAX_WRITERS:])


def _by_place(name: str, position: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Split what a source's `state` returned."""
    kind, _, rest = name.partition(":")
    if kind == "journal" and position:
        return {_unit(name): position}
    if kind != "tail":
        return {}
    each = position if is_pattern(rest) else {rest: position}
    return {os.path.realpath(path): at for path, at in each.items() if at}


def _own(name: str, places: Iterable[str]) -> dict[str, str]:
    """Return the remembered places that a source of that name reads, each with the source's own spelling."""
    kind, _, rest = name.partition(":")
    if kind == "journal":
        words = {_unit(name): name}
    elif kind != "tail":
        words = {}
    elif is_pattern(rest):
        from omniwatch.sources.tails import glob, to_follow

        # A file amid its rotation is not there to be found, but its name still matches.
        words = {place: place for place in places if Path(rest).is_absolute() and Path(place).match(rest)}
        words |= {os.path.realpath(path): str(path) for path in to_follow(glob(rest), set())}
    else:
        words = {os.path.realpath(rest): rest}
    return {place: word for place, word in words.items() if place in places}


def _position(name: str, mine: dict[str, str], places: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Put together what a source's `restore` takes."""
    if name.startswith("tail:") and is_pattern(name):
        return {word: places[place] for place, word in mine.items()}
    return places[next(iter(mine))]


def _unit(name: str) -> str:
    """`journalctl` takes a name without a suffix for a service's."""
    return name.removesuffix(".service")
