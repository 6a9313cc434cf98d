"""The values that are drawn: a dashboard as a sheet of panels, with names, colours and texts already chosen.

Colours are Grafana's names, or a number: the place in the palette that curves are told apart by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from omniwatch.desk.draw.window import Window

Points = list[tuple[float, float]]
"""Values by time; NaN where a curve is interrupted."""


class Place(NamedTuple):
    """Cells of the 24-column grid."""

    x: int
    y: int
    w: int
    h: int


class Level(NamedTuple):
    """From this value on (None: from the lowest), this colour."""

    value: float | None
    colour: str


class Curve(NamedTuple):
    """One series; in a stack it stands on `base`, which has a value for each of its points."""

    name: str
    points: Points
    base: Sequence[float] = ()
    colour: str = ""
    """One that the series has by what it means; else the palette's next."""
    ends: str = ""
    """Its last value and its worst, for the legend."""


class Chart(NamedTuple):
    """Curves over time."""

    curves: list[Curve]
    unit: str
    levels: list[Level]
    lines: bool
    """Whether the levels are drawn as lines …"""
    bands: bool
    """… and as bands of colour."""
    low: float | None
    high: float | None


class Tile(NamedTuple):
    """One value, large."""

    name: str
    text: str
    colour: str


class Tiles(NamedTuple):
    """Values beside each other."""

    tiles: list[Tile]


class Span(NamedTuple):
    """A time with one state."""

    start: float
    end: float
    text: str
    colour: str


class Lane(NamedTuple):
    """The states of one series."""

    name: str
    spans: list[Span]


class Lanes(NamedTuple):
    """States over time, one series below the other."""

    lanes: list[Lane]


class Cell(NamedTuple):
    """One of a table's."""

    text: str
    colour: str = ""


class Grid(NamedTuple):
    """A table."""

    heads: list[str]
    rows: list[list[Cell]]


class Nothing(NamedTuple):
    """No picture, and why."""

    reason: str


Shown = Chart | Tiles | Lanes | Grid | Nothing


class Frame(NamedTuple):
    """A panel."""

    title: str
    description: str
    place: Place
    shown: Shown


class Mark(NamedTuple):
    """Something happened."""

    t: float
    text: str
    colour: str


class Sheet(NamedTuple):
    """A dashboard."""

    title: str
    description: str
    window: Window
    headings: list[tuple[str, int]]
    """Titles of the rows, each with its place down the grid."""
    frames: list[Frame]
    marks: list[tuple[str, str, list[Mark]]]
    """Each annotation's name, colour and marks."""
