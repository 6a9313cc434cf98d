"""Draw a time series panel: axes, curves or a stack, thresholds, annotations and the legend."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from matplotlib.ticker import MaxNLocator

from omniwatch.desk.draw import units
from omniwatch.desk.draw.canvas import Box, Canvas, colour, curve_style, fitted, width
from omniwatch.desk.draw.model import Chart, Mark
from omniwatch.desk.draw.window import Window
from omniwatch.desk.plotting import INK, tick_s

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMALL, LINE = 7.0, 10.0
"""Size of text and distance of lines, in points."""
LEGEND_LINES = 3
WARNING = {"yellow": 1, "orange": 2, "red": 3}
DOT = 0.0005
"""Half the length of a dot's line, as a share of the panel's width."""
SQUEEZE = 4.0
"""A threshold is shown unless the curves would be left with less than this fraction of the height."""


def draw_chart(canvas: Canvas, box: Box, chart: Chart, window: Window, marks: Iterable[Mark]) -> None:
    """Fill a box with the chart."""
    rows = legend_rows([": ".join(filter(None, (curve.name, curve.ends))) for curve in chart.curves], box.w)
    low, high = extent(chart)
    ticks = y_ticks(low, high, chart.unit)
    words = [units.tick(value, chart.unit) for value in ticks]
    left = max(width(word, SMALL) for word in words) + 6
    axes = canvas.axes(box.inside(left, 4, 4, 14 + LINE * len(rows) + 2))
    axes.patch.set_alpha(0)
    axes.set_xlim(*window)
    axes.set_ylim(low, high)
    axes.set_yticks(ticks, words)
    axes.tick_params(labelsize=SMALL, pad=2)
    _time(axes, window)
    _levels(axes, chart, low, high)
    _marks(axes, marks)
    _curves(axes, chart)
    colours = [curve.colour for curve in chart.curves]
    _legend(canvas, Box(box.x, box.y + box.h - LINE * len(rows), box.w, LINE * len(rows)), rows, colours)


def extent(chart: Chart) -> tuple[float, float]:
    """Return the values at the axis's ends: the curves', the thresholds' that are near, and what the panel fixes."""
    values = [y for curve in chart.curves for _, y in curve.points if not math.isnan(y)]
    values += [y for curve in chart.curves for y in curve.base]
    low, high = min(values), max(values)
    if chart.low is not None:
        low = chart.low
    if chart.high is not None:
        high = chart.high
    height = (high - low) or abs(high) or 1.0
    for level in chart.levels:
        if level.value is not None and (chart.lines or chart.bands):
            wider_low = low if chart.low is not None else min(low, level.value)
            wider_high = high if chart.high is not None else max(high, level.value)
            if wider_high - wider_low <= SQUEEZE * height:
                low, high = wider_low, wider_high
    if high == low:
        low, high = (low if chart.low is not None else low - 0.5 * height), high + 0.5 * height
    room = 0.06 * (high - low)
    # A line that runs along a fixed end is seen whole.
    edge = 0.01 * (high - low)
    return low - (edge if chart.low is not None else room), high + (edge if chart.high is not None else room)


def y_ticks(low: float, high: float, unit: str) -> list[float]:
    """Return round values, round in the unit that the largest is written in: whole minutes, not 200 s."""
    one = units.one(max(abs(low), abs(high)), unit)
    found = MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]).tick_values(low / one, high / one)
    return [round(float(value), 9) * one for value in found if low <= value * one <= high]


def legend_rows(names: Sequence[str], across: float) -> list[list[tuple[int, str, float]]]:
    """Break a legend into lines of number, name and left edge; what does not fit into the last is counted there."""
    rows: list[list[tuple[int, str, float]]] = [[]]
    x = 0.0
    for number, name in enumerate(names):
        short = fitted(name, SMALL, across - 20)
        needed = 14 + width(short, SMALL) + 8
        left = len(names) - number
        last = len(rows) == LEGEND_LINES
        room = across - (width(f"… and {left} more", SMALL) if last and left > 1 else 0)
        if x + needed > room and rows[-1]:
            if last:
                rows[-1].append((-1, f"… and {left} more", x))
                break
            rows.append([])
            x = 0.0
        rows[-1].append((number, short, x))
        x += needed
    return rows


def severity(name: str) -> int:
    """Return how bad a colour is: green 0, red the most."""
    return WARNING.get(name.rpartition("-")[2], 0)


def clock_text(t: float, length_s: float) -> str:
    """Write a time of day (UTC), with the seconds where little time is shown."""
    return datetime.fromtimestamp(t, timezone.utc).strftime("%H:%M:%S" if length_s < 300 else "%H:%M")


def _time(axes: Axes, window: Window) -> None:
    every = tick_s(window.length_s * 1.6)
    first = math.ceil(window.start / every)
    ticks = [number * every for number in range(first, math.floor(window.end / every) + 1)]
    axes.set_xticks(ticks, [clock_text(t, window.length_s) for t in ticks])


def _marks(axes: Axes, marks: Iterable[Mark]) -> None:
    by_colour: dict[str, list[float]] = {}
    for mark in marks:
        by_colour.setdefault(colour(mark.colour), []).append(mark.t)
    for shade, times in by_colour.items():
        # One path for all: a mark of its own for each is most of a picture's bytes.
        across = axes.get_xaxis_transform()
        xs, ys = [x for t in times for x in (t, t, math.nan)], [0.0, 1.0, math.nan] * len(times)
        axes.plot(
            xs, ys, color=shade, linewidth=0.6, alpha=0.6, linestyle=(0, (2, 2)), zorder=1.5, transform=across
        )
        axes.plot(times, [0] * len(times), "^", color=shade, markersize=3, transform=across, clip_on=False)


def _levels(axes: Axes, chart: Chart, low: float, high: float) -> None:
    steps = [(-math.inf if level.value is None else level.value, level.colour) for level in chart.levels]
    ends = [*(value for value, _ in steps), math.inf][1:]
    if chart.bands:
        for (value, name), end in zip(steps, ends, strict=True):
            if value < high and end > low:
                axes.axhspan(
                    max(value, low), min(end, high), color=colour(name), alpha=0.1, linewidth=0, zorder=0
                )
    if chart.lines:
        for (_, below), (value, name), end in zip(steps, steps[1:], ends[1:], strict=False):
            if low <= value <= high:
                # What lies above the next one's label would be written over it.
                crowded = (end - value) < 0.07 * (high - low)
                _level(axes, value, max(below, name, key=severity), units.tick(value, chart.unit), crowded)


def _level(axes: Axes, value: float, name: str, words: str, crowded: bool) -> None:
    """Draw a boundary in the colour of its worse side, its value at the right end."""
    axes.axhline(value, color=colour(name), linewidth=0.8, linestyle=(0, (5, 3)), zorder=1.2)
    axes.annotate(
        words,
        (1, value),
        (-1, -1.5 if crowded else 1.5),
        xycoords=("axes fraction", "data"),
        textcoords="offset points",
        ha="right",
        va="top" if crowded else "bottom",
        fontsize=SMALL - 1,
        color=colour(name),
    )


def _curves(axes: Axes, chart: Chart) -> None:
    for number, curve in enumerate(chart.curves):
        xs, ys = [t for t, _ in curve.points], [y for _, y in curve.points]
        style = curve_style(number, curve.colour)
        # In a stack a series that adds nothing would hide the one it stands on.
        order = 3 - 0.01 * number if curve.base else 3
        axes.plot(xs, ys, linewidth=1.1, solid_joinstyle="round", zorder=order, **style)
        if curve.base:
            axes.fill_between(xs, curve.base, ys, color=style["color"], alpha=0.25, linewidth=0, zorder=2)
        alone = lonely(ys)
        if alone:
            # Dots as very short lines with round ends: one path, where markers would be an element each. A PNG shows
            # nothing of a line without any length, nor of one whose ends are moved to the same pixel (snap).
            left, right = axes.get_xlim()
            short, nan = DOT * (right - left), math.nan
            dots = [x for n in alone for x in (xs[n] - short, xs[n] + short, nan)]
            levels = [y for n in alone for y in (ys[n], ys[n], nan)]
            axes.plot(
                dots,
                levels,
                color=style["color"],
                linewidth=2.6,
                solid_capstyle="round",
                snap=False,
                zorder=3,
            )


def lonely(ys: Sequence[float]) -> list[int]:
    """Return the places of values with nothing on either side, which a line would not show."""
    around = [math.nan, *ys, math.nan]
    return [
        n
        for n, y in enumerate(ys)
        if not math.isnan(y) and math.isnan(around[n]) and math.isnan(around[n + 2])
    ]


def _legend(
    canvas: Canvas, box: Box, rows: Sequence[Sequence[tuple[int, str, float]]], colours: Sequence[str]
) -> None:
    for line, row in enumerate(rows):
        y = box.y + LINE * line + LINE - 2
        for number, name, x in row:
            if number >= 0:
                style = curve_style(number, colours[number])
                canvas.line([box.x + x, box.x + x + 10], [y - 2.5, y - 2.5], linewidth=1.8, **style)
            canvas.text(box.x + x + (14 if number >= 0 else 0), y, name, SMALL, color=INK)
