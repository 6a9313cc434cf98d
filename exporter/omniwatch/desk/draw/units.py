"""Format numbers as Grafana does for a unit of its list: 0.25 s is "250 ms", 1536 bytes are "1.50 KiB"."""

from __future__ import annotations

import math
from typing import NamedTuple

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
_DECIMAL = ("f", "p", "n", "µ", "m", "", "k", "M", "G", "T", "P")
_COUNTED = ("", "K", "M", "B", "T")
_LARGE = ("", " K", " Mil", " Bil", " Tri", " Quadr")


class _Step(NamedTuple):
    """One scale of a unit: from `least` on, a value is divided by `one`, and `suffix` follows it."""

    least: float
    one: float
    suffix: str


_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86_400.0
_SECONDS = (
    _Step(0, 1e-9, " ns"),
    _Step(1e-6, 1e-6, " µs"),
    _Step(1e-3, 1e-3, " ms"),
    _Step(1, 1, " s"),
    _Step(_MINUTE, _MINUTE, " min"),
    _Step(_HOUR, _HOUR, " hour"),
    _Step(_DAY, _DAY, " day"),
)


def _scaled(
    factor: float, words: tuple[str, ...], unit: str, base: int = 0, gap: str = " "
) -> tuple[_Step, ...]:
    """Steps of one factor: `base` is the place in `words` of the unit itself."""
    steps = [
        _Step(factor ** (n - base), factor ** (n - base), f"{gap}{word}{unit}")
        for n, word in enumerate(words)
    ]
    return (steps[0]._replace(least=0), *steps[1:])


def _plain(suffix: str, one: float = 1.0) -> tuple[_Step, ...]:
    return (_Step(0, one, suffix),)


UNITS: dict[str, tuple[_Step, ...]] = {
    "none": _plain(""),
    "short": _scaled(1000, _LARGE, "", gap=""),
    "percent": _plain("%"),
    "percentunit": _plain("%", 0.01),
    "ppm": _plain(" ppm"),
    "celsius": _plain(" °C"),
    "s": _SECONDS,
    "ms": (
        _Step(0, 1, " ms"),
        *(_Step(step.least * 1000, step.one * 1000, step.suffix) for step in _SECONDS if step.one >= 1),
    ),
    "bytes": _scaled(1024, _BINARY, "B"),
    "Bps": _scaled(1000, _DECIMAL, "B/s", 5),
    "hertz": _scaled(1000, _DECIMAL, "Hz", 5),
    "watt": _scaled(1000, _DECIMAL, "W", 5),
    **{
        name: _scaled(1000, _COUNTED, f" {unit}", gap="")
        for name, unit in (
            ("cps", "c/s"),
            ("ops", "ops/s"),
            ("opm", "ops/m"),
            ("reqps", "req/s"),
            ("reqpm", "req/m"),
            ("eps", "evt/s"),
            ("epm", "evt/m"),
        )
    },
}
"""By Grafana's ids; any other id is written after the number as it is, as Grafana does."""


def one(value: float, unit: str) -> float:
    """Return how much of `unit` the step that `value` is written in counts as one: 60 for 90 "s"."""
    return _step(value, unit).one


def text(value: float, unit: str) -> str:
    """Write a value to about three digits, its unit scaled."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    step = _step(value, unit)
    return _fixed(value / step.one) + step.suffix


def tick(value: float, unit: str) -> str:
    """Write a round value for an axis: as `text`, without zeros that say nothing."""
    step = _step(value, unit)
    number = _fixed(value / step.one)
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    return number + step.suffix


def _step(value: float, unit: str) -> _Step:
    steps = UNITS.get(unit) or _plain(f" {unit}")
    if value == 0:
        return next(step for step in steps if step.one == 1 or len(steps) == 1)
    # A hair below a limit is the limit: 0.1 * 3 of a minute is not written in seconds.
    size = abs(value) * (1 + 1e-9)
    return next(step for step in reversed(steps) if size >= step.least)


def _fixed(number: float) -> str:
    if abs(number - round(number)) < 1e-9:
        return f"{round(number)}"
    decimals = max(0, 2 - math.floor(math.log10(abs(number))))
    return f"{number:.{decimals}f}"
