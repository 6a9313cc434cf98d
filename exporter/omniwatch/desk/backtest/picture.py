"""Draw a backtest: both curves, and below them a row for each alert with when it was pending and firing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from omniwatch.desk import plotting
from omniwatch.desk.backtest.compare import of_series
from omniwatch.desk.backtest.rules import HEARTBEAT
from omniwatch.desk.backtest.run import CURVES, Findings
from omniwatch.desk.backtest.states import Episode, Labels, Series
from omniwatch.desk.backtest.text_report import rank, shown
from omniwatch.replay import clock
from omniwatch.system import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEANINGS = ("voice minus picture", "text sent to first speech")
Drawstyle = Literal["default", "steps-post"]
DRAWSTYLES: tuple[Drawstyle, Drawstyle] = ("default", "steps-post")
CURVE_IN, ROW_IN, FRAME_IN = 1.5, 0.3, 1.2
"""Heights in inches."""


class AlertRow(NamedTuple):
    """One alert's row in the picture: its episodes with each rule set."""

    severity: str
    name: str
    labels: Labels
    lives: list[list[Episode]]


def write(sides: Sequence[Findings], path: Path, title: str) -> None:
    """Draw one backtest, or two of one recording, into an SVG or PNG file. Raises OSError."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(plotting.STYLE, after_reset=True):
        rows_in = max(len(rows(sides)), 1) * ROW_IN * (1 + 0.5 * (len(sides) - 1))
        figure = Figure(figsize=(9.6, 2 * CURVE_IN + rows_in + FRAME_IN), layout="constrained")
        draw(sides, figure, title)
        picture = plotting.encoded(figure, path)
    atomic_write.replace(path, picture)


def rows(sides: Sequence[Findings]) -> list[AlertRow]:
    """Return the alerts that were pending or firing with any rule set, pages first, then by time; no heartbeat."""
    found: dict[tuple[str, Labels], AlertRow] = {}
    for number, side in enumerate(sides):
        for verdict in side.verdicts:
            for alert in verdict.alerts if verdict.rule.severity != HEARTBEAT else ():
                labels = of_series(verdict, alert)
                row = found.setdefault(
                    (verdict.rule.name, labels),
                    AlertRow(verdict.rule.severity, verdict.rule.name, labels, [[] for _ in sides]),
                )
                row.lives[number].extend(alert.episodes)
    return sorted(
        found.values(),
        key=lambda row: (rank(row.severity), min(e.pending_t for life in row.lives for e in life)),
    )


def draw(sides: Sequence[Findings], figure: Figure, title: str) -> None:
    """Put curves and rows one above the other, on one axis of time."""
    from matplotlib.ticker import FuncFormatter, MultipleLocator

    first = sides[0]
    length_s = max(first.last_t - first.first_t, 1.0)
    shown_rows = rows(sides)
    rows_in = max(len(shown_rows), 1) * ROW_IN * (1 + 0.5 * (len(sides) - 1))
    *curves, below = figure.subplots(3, 1, sharex=True, height_ratios=[CURVE_IN, CURVE_IN, rows_in])
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    for axes, name, meaning, line in zip(curves, CURVES, MEANINGS, DRAWSTYLES, strict=True):
        axes.set_title(f"{name}: {meaning} (ms)", loc="left", fontsize=9)
        axes.set_xlim(0, length_s)
        axes.margins(x=0)
        _curves(axes, first.curves.get(name, ()), first, line)
    _rows(below, shown_rows, sides)
    below.xaxis.set_major_locator(MultipleLocator(plotting.tick_s(length_s)))
    below.xaxis.set_major_formatter(FuncFormatter(lambda s, _: clock(s)))
    below.set_xlabel("time into the recording (min:s)")


def _curves(axes: Axes, answers: Sequence[Series], findings: Findings, drawstyle: Drawstyle) -> None:
    """Draw a curve for each series, broken where it was not there."""
    gap_s = findings.side.settings.alerts.scrape_interval_s * 1.5
    colours = plotting.STREAM_COLOURS
    for number, answer in enumerate(answers):
        xs: list[float] = []
        ys: list[float] = []
        for t, value in answer.points:
            x = t - findings.first_t
            if xs and x - xs[-1] > gap_s:
                xs.append(x)
                ys.append(float("nan"))
            xs.append(x)
            ys.append(value)
        axes.plot(xs, ys, color=colours[number % len(colours)], drawstyle=drawstyle)


def _rows(axes: Axes, shown_rows: Sequence[AlertRow], sides: Sequence[Findings]) -> None:
    """Draw each alert's bars: pale while it was pending, full while it was firing; a bar each for two rule sets."""
    first = sides[0]
    legend = "pale: pending, full: firing"
    if len(sides) > 1:
        legend += f"; upper bar {sides[0].side.name}, lower bar {sides[1].side.name}"
    axes.set_title("alerts" if shown_rows else "alerts: none", loc="left", fontsize=9)
    axes.set_title(legend, loc="right", fontsize=8, color=plotting.FAINT)
    axes.set_ylim(max(len(shown_rows), 1) - 0.5, -0.5)
    axes.grid(False)
    height = 0.7 / len(sides)
    for place, row in enumerate(shown_rows):
        for number, life in enumerate(row.lives):
            middle = place - 0.35 + height * (number + 0.5)
            for episode in life:
                _bar(axes, episode, middle, height, first)
    labels = [f"{row.name} {shown(row.labels, first.side.targets[0])}".rstrip() for row in shown_rows]
    axes.set_yticks(range(len(shown_rows)), labels, fontsize=8)


def _bar(axes: Axes, episode: Episode, middle: float, height: float, findings: Findings) -> None:
    end_t = findings.last_t if episode.over_t is None else episode.over_t
    fires_t = end_t if episode.firing_t is None else episode.firing_t
    for state, start, stop in (("pending", episode.pending_t, fires_t), ("firing", fires_t, end_t)):
        left = max(start - findings.first_t, 0.0)
        width = stop - findings.first_t - left
        if width > 0:
            alpha = 0.45 if state == "pending" else 1.0
            colour = plotting.STATE_COLOURS[state]
            axes.barh(middle, width, height * 0.9, left, color=colour, alpha=alpha, linewidth=0)
