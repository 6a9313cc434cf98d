"""Tell entries of a journal that were read before, by the numbers in their cursors."""

from __future__ import annotations

import re
from typing import Any

import msgspec

NUMBERS = re.compile("s=([0-9a-f]{1,32});i=([0-9a-f]{1,16});b=([0-9a-f]{1,32});m=([0-9a-f]{1,16})(?:;|$)")
"""Of a journal's cursor: whose sequence, the place in it, which boot, its microsecond."""
MAX_COUNTED = 8
"""Sequences and boots of which it is remembered how far they were read."""


class Furthest:
    """How far each sequence was read in each boot.

    A damaged number can lead journalctl back, or on. An entry was read before where both numbers say so: one damaged number
    hides no other entry.
    """

    def __init__(self, state: object = None) -> None:
        try:
            read = msgspec.convert(state or {}, dict[str, tuple[int, int]])
        except msgspec.ValidationError:
            read = {}
        self._read = dict(list(read.items())[-MAX_COUNTED:])

    def state(self) -> dict[str, Any]:
        """Return what `Furthest` takes up again."""
        return {place: list(numbers) for place, numbers in self._read.items()}

    def passes(self, cursor: str) -> bool:
        """Take an entry's cursor; whether the entry was not read before."""
        found = NUMBERS.match(cursor)
        if not found:
            return True
        place, number, at_us = f"{found[1]} {found[3]}", int(found[2], 16), int(found[4], 16)
        last, last_us = self._read.pop(place, (-1, -1))
        self._read[place] = max(number, last), max(at_us, last_us)
        if len(self._read) > MAX_COUNTED:
            del self._read[next(iter(self._read))]
        return number > last or at_us > last_us
