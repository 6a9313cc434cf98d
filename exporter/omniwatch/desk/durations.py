"""Read durations as Prometheus does."""

from __future__ import annotations

import re

_NUMBER = r"(\d+(?:\.\d+)?)"
_DURATION = re.compile(
    rf"(?:{_NUMBER}y)?(?:{_NUMBER}w)?(?:{_NUMBER}d)?(?:{_NUMBER}h)?(?:{_NUMBER}m(?!s))?(?:{_NUMBER}s)?(?:{_NUMBER}ms)?",
    re.ASCII,
)
_UNITS_S = (365 * 86_400, 7 * 86_400, 86_400, 3600, 60, 1, 0.001)


def seconds(text: str | int, *, fractions: bool = False) -> float:
    """Read a duration such as 1m30s or 0; "" is 0. Raises ValueError.

    With `fractions`, 1.5h is one as well. Prometheus itself refuses it.
    """
    text = str(text)
    match = _DURATION.fullmatch(text)
    if text == "0":
        return 0.0
    if match is None or ("." in text and not fractions):
        raise ValueError(f"expected a duration such as 15s or 1m30s, got {text!r}")
    parts = zip(match.groups(), _UNITS_S, strict=True)
    return sum((float(number) if "." in number else int(number)) * unit for number, unit in parts if number)
