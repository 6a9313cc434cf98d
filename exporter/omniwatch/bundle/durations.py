"""Read durations as Prometheus does."""

from __future__ import annotations

import re

_UNITS_S = {"y": 365 * 86_400, "w": 7 * 86_400, "d": 86_400, "h": 3600, "m": 60, "s": 1, "ms": 0.001}
_DURATION = re.compile("".join(rf"(?:(\d+(?:\.\d+)?){unit}(?!s))?" for unit in _UNITS_S), re.ASCII)


def seconds(text: str, *, fractions: bool = False) -> float | None:
    """Return a duration such as 1m30s in seconds; None for any other text.

    With `fractions`, 1.5h is one as well. Prometheus itself refuses it.
    """
    match = _DURATION.fullmatch(text)
    if not text or match is None or ("." in text and not fractions):
        return None
    parts = zip(match.groups(), _UNITS_S.values(), strict=True)
    return sum((float(number) if "." in number else int(number)) * unit for number, unit in parts if number)
