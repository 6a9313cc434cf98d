"""Find the known name that a mistyped one most likely means."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

ALIKE = 0.6
"""Share of the letters that two names must have in common for one to be taken for the other."""


def closest(wanted: str, known: Iterable[str]) -> str:
    """Return the most similar of the `known` names, whatever their case; "" when none is similar.

    Of names with an extension the part before the first dot counts most, and a name that contains what was typed comes
    before one that does not.
    """

    def similarity(name: str) -> tuple[bool, float, float]:
        typed, other = wanted.lower(), name.lower()
        typed_stem, stem = _stem(typed), _stem(other)
        return typed_stem in stem or typed in other, _ratio(typed_stem, stem), _ratio(typed, other)

    best = max(known, key=similarity, default="")
    contained, *ratios = similarity(best)
    return best if contained or max(ratios) >= ALIKE else ""


def _stem(name: str) -> str:
    return name.rpartition("/")[2].partition(".")[0]


def _ratio(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()
