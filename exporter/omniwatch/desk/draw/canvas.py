"""A page to draw on: points from its upper left corner; a text's width is known before it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.textpath import text_to_path

from omniwatch.desk.plotting import INK, STATE_COLOURS, STREAM_COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS_PER_INCH = 72
COLOURS = {
    "red": STATE_COLOURS["firing"],
    "orange": STATE_COLOURS["pending"],
    "green": STREAM_COLOURS[1],
    "blue": STREAM_COLOURS[0],
    "purple": STREAM_COLOURS[2],
    "yellow": "#F0E442",
    "text": INK,
}
"""Grafana's names, in the palette of all the project's pictures."""
DASHES: tuple[Any, ...] = ("solid", (0, (4, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
"""For curves that begin the palette again."""


class Box(NamedTuple):
    """A rectangle in points, `y` at its upper edge."""

    x: float
    y: float
    w: float
    h: float

    def inside(self, left: float, top: float, right: float, bottom: float) -> Box:
        """Return what the margins leave."""
        return Box(self.x + left, self.y + top, self.w - left - right, self.h - top - bottom)


def colour(name: str) -> str:
    """Return a colour for Grafana's name of it, which may be a number sign and digits already."""
    return name if name.startswith("#") else COLOURS.get(name.rpartition("-")[2], INK)


def curve_style(number: int, fixed: str = "") -> dict[str, Any]:
    """Return the colour and dashes of a panel's n-th curve, which may have a colour of its own."""
    if fixed:
        return {"color": colour(fixed), "linestyle": DASHES[0]}
    dashes = number // len(STREAM_COLOURS) % len(DASHES)
    return {"color": STREAM_COLOURS[number % len(STREAM_COLOURS)], "linestyle": DASHES[dashes]}


@lru_cache(maxsize=4096)
def width(text: str, size: float, weight: str = "normal") -> float:
    """Return the width of a line of text in points."""
    font = FontProperties(family="DejaVu Sans", size=size, weight=weight)
    across: float = text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]
    return across


def fitted(text: str, size: float, across: float, weight: str = "normal") -> str:
    """Return as much of a text as fits, with an ellipsis where that is not all."""
    if width(text, size, weight) <= across:
        return text
    while text and width(f"{text}…", size, weight) > across:
        text = text[:-1].rstrip()
    return f"{text}…"


def wrapped(text: str, size: float, across: float, most: int) -> list[str]:
    """Break a text into lines, the last ending in an ellipsis where there would be more than `most`."""
    lines: list[str] = []
    words = text.split()
    while words and len(lines) < most:
        line = words.pop(0)
        while words and width(f"{line} {words[0]}", size) <= across:
            line += f" {words.pop(0)}"
        if words and len(lines) == most - 1:
            line = fitted(f"{line} {words[0]} …", size, across)
        lines.append(line)
    return lines


class Canvas:
    """One figure, as large as asked for."""

    def __init__(self, figure: Figure, across: float, down: float) -> None:
        self.figure = figure
        self.across, self.down = across, down
        figure.set_size_inches(across / POINTS_PER_INCH, down / POINTS_PER_INCH)
        self._page = figure.add_axes((0, 0, 1, 1))
        self._page.set_xlim(0, across)
        self._page.set_ylim(down, 0)
        self._page.axis("off")

    def axes(self, box: Box) -> Axes:
        """Return axes that fill a box."""
        return self.figure.add_axes(
            (box.x / self.across, 1 - (box.y + box.h) / self.down, box.w / self.across, box.h / self.down)
        )

    def text(self, x: float, y: float, text: str, size: float, **style: Any) -> None:
        """Write a line; `y` is its baseline. Nothing in it is taken for mathematics."""
        style = {"color": INK, "va": "baseline", "ha": "left"} | style
        self._page.text(x, y, text, fontsize=size, parse_math=False, **style)

    def card(self, box: Box, fill: str, edge: str) -> None:
        """Draw a rectangle with round corners."""
        style = "round,pad=0,rounding_size=3"
        self._page.add_patch(
            FancyBboxPatch((box.x, box.y), box.w, box.h, style, facecolor=fill, edgecolor=edge, linewidth=0.6)
        )

    def bar(self, box: Box, fill: str, alpha: float = 1.0) -> None:
        """Draw a rectangle."""
        self._page.add_patch(
            Rectangle((box.x, box.y), box.w, box.h, facecolor=fill, alpha=alpha, linewidth=0)
        )

    def line(self, xs: Sequence[float], ys: Sequence[float], **style: Any) -> None:
        """Draw a line."""
        self._page.plot(xs, ys, **style)
