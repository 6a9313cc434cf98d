"""Draw a replay: both curves of every stream, their thresholds, and when each rule would fire."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from omniwatch.core.rule_states import Rule, Sample, contract_rules, spans
from omniwatch.desk.plotting import (
    FAINT,
    INK,
    LABEL_COLOURS,
    STATE_COLOURS,
    STREAM_COLOURS,
    STYLE,
    encoded,
    tick_s,
)
from omniwatch.replay import Replay, Track, clock
from omniwatch.system import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def write(replay: Replay, path: Path, title: str) -> None:
    """Draw a replay into an SVG or PNG file, the same bytes for the same recording. Raises OSError."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(STYLE, after_reset=True):
        figure = Figure(figsize=(9.6, 5.4), layout="constrained")
        draw(replay, figure, title)
        picture = encoded(figure, path)
    atomic_write.replace(path, picture)


def draw(replay: Replay, figure: Figure, title: str) -> None:
    """Put both curves of all streams one above the other, on one axis of time."""
    from matplotlib.ticker import FuncFormatter, MultipleLocator

    alerts = replay.settings.alerts
    drift_rule, rtt_rule = contract_rules(alerts)
    length_s = max(replay.now - replay.first_t, 1.0)
    above, below = figure.subplots(2, 1, sharex=True)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    tracks = [track for track in replay.tracks.values() if track.samples]
    for axes, rule, name, meaning, sign in (
        (above, drift_rule, "omni_codec_drift_ms", "voice minus picture", "|drift|"),
        (below, rtt_rule, "omni_token_rtt_ms", "text sent to first speech", "round trip"),
    ):
        axes.set_title(f"{name}: {meaning} (ms)", loc="left", fontsize=9)
        pages = f"{rule.name} pages at {sign} > {rule.threshold:g} ms for {rule.for_s:g} s"
        axes.set_title(pages, loc="right", fontsize=8, color=FAINT)
        axes.margins(x=0)
        axes.set_xlim(0, length_s)
        _bands(axes, rule, tracks, replay.first_t, alerts.evaluation_interval_s)
    drift_ends = _curves(above, tracks, replay.first_t, lambda sample: sample.drift_ms, "default")
    _thresholds(above, (drift_rule.threshold, -drift_rule.threshold))
    _label_ends(above, drift_ends)
    rtt_ends = _curves(below, tracks, replay.first_t, lambda sample: sample.rtt_ms, "steps-post")
    _thresholds(below, (rtt_rule.threshold,), lowest=0.0)
    _label_ends(below, rtt_ends)
    below.xaxis.set_major_locator(MultipleLocator(tick_s(length_s)))
    below.xaxis.set_major_formatter(FuncFormatter(lambda s, _: clock(s)))
    below.set_xlabel(
        f"time into the recording (min:s); sampled each {alerts.scrape_interval_s} s, "
        f"rules evaluated each {alerts.evaluation_interval_s} s"
    )


def _bands(axes: Axes, rule: Rule, tracks: Sequence[Track], first_t: float, eval_s: float) -> None:
    """Shade where the rule would be pending or firing for any stream, and name it where there is room."""
    found = [span for track in tracks for span in spans(rule, track.samples, eval_s)]
    across_s = axes.get_xlim()[1]
    for state, words in (("pending", "pending"), ("firing", f"{rule.name} fires")):
        for start_t, end_t in _merged([(s.start_t, s.end_t) for s in found if s.state == state]):
            left, right = start_t - first_t, end_t - first_t
            axes.axvspan(left, right, color=STATE_COLOURS[state], alpha=0.22, linewidth=0, zorder=0)
            label = f"{words} {right - left:.0f} s" if state == "firing" else words
            if (right - left) / across_s > 0.0085 * len(label):
                axes.annotate(
                    label,
                    (left, 1),
                    (3, -3),
                    xycoords=("data", "axes fraction"),
                    textcoords="offset points",
                    va="top",
                    fontsize=8,
                    color=LABEL_COLOURS[state],
                )


def _merged(intervals: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _curves(
    axes: Axes,
    tracks: Sequence[Track],
    first_t: float,
    value: Callable[[Sample], float | None],
    drawstyle: Literal["default", "steps-post"],
) -> list[tuple[float, str, str]]:
    """Draw a curve for each stream; return where each ends, its name and its colour, unless there are too many."""
    ends: list[tuple[float, str, str]] = []
    few = len(tracks) <= len(STREAM_COLOURS)
    for number, track in enumerate(tracks):
        colour = STREAM_COLOURS[number if few else 0]
        points = [(sample.t - first_t, value(sample)) for sample in track.samples]
        heights = [nan if y is None else y for _, y in points]
        axes.plot([x for x, _ in points], heights, color=colour, drawstyle=drawstyle, solid_joinstyle="round")
        shown = [y for y in heights if y == y]
        if shown and few:
            label = _ms(shown[-1]) if len(tracks) == 1 else track.stream
            ends.append((shown[-1], label, colour))
    return ends


def _label_ends(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Name each curve at the right edge, moved apart where they end close together."""
    low, high = axes.get_ylim()
    lowest = low
    for y, label, colour in sorted(ends):
        at = max(y, lowest)
        lowest = at + 0.08 * (high - low)
        axes.annotate(
            label,
            (1, at),
            (4, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color=colour,
            annotation_clip=False,
        )


def _thresholds(axes: Axes, levels: Sequence[float], lowest: float | None = None) -> None:
    """Draw the levels as lines, each with its value, and make room above them for the bands' names."""
    low, high = axes.get_ylim()
    low = min(low, -1.5 * levels[0]) if lowest is None else lowest
    axes.set_ylim(low, max(high, levels[0] + 0.2 * (levels[0] - low)))
    for level in levels:
        axes.axhline(level, color=INK, linewidth=0.7, linestyle=(0, (4, 3)), zorder=1)
        axes.annotate(
            _ms(level),
            (0, level),
            (3, 3 if level > 0 else -3),
            textcoords="offset points",
            va="bottom" if level > 0 else "top",
            fontsize=7.5,
        )


def _ms(value: float) -> str:
    return f"{value:.0f} ms".replace("-", "\N{MINUS SIGN}")
