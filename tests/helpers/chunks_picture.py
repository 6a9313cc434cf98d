"""Draw what a server's chunk sizes do to a listener, from recordings of the real one: `chunks_picture.py FILE.svg`."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import NamedTuple

from matplotlib import style
from matplotlib.figure import Figure

from helpers.wire import wire_events
from omniwatch.core.drift import Player
from omniwatch.desk.plotting import INK, STATE_COLOURS, STREAM_COLOURS, STYLE
from omniwatch.events import Audio, TurnStart
from omniwatch.settings import Settings

SHOWN = {"default-chunks": "shipped: 4, then\n25 frames a chunk", "small-chunks": "4 frames a chunk"}
LENGTH_S = 6.0
STEP_S = 0.005
GAP_S = 0.01
"""What is shown as a silence."""


class Hearing(NamedTuple):
    """The first turn of a recording: seconds from the question on, drift in milliseconds."""

    spoken: list[tuple[float, float]]
    drift: list[tuple[float, float]]


def hearing(name: str) -> Hearing:
    """Play a recording's first turn with the player that the sidecar plays it with, its picture going on in real time."""
    events = list(wire_events(name))
    asked_t = next(event.t for event in events if isinstance(event, TurnStart))
    chunks = [event for event in events if isinstance(event, Audio) and event.turn == 1]
    buffer_s = Settings().streams.playout_buffer_ms / 1000
    player = Player()
    spoken: list[tuple[float, float]] = []
    drift: list[tuple[float, float]] = []
    for n in range(round(LENGTH_S / STEP_S)):
        now = n * STEP_S
        while chunks and chunks[0].t - asked_t <= now:
            chunk = chunks.pop(0)
            at = chunk.t - asked_t
            if player.send(at, chunk.dur_ms, buffer_s) > GAP_S or not spoken:
                spoken.append((max(at, player.start_t), 0.0))
            spoken[-1] = spoken[-1][0], player.end_t
        if 0 <= player.start_t <= now and (chunks or now <= player.end_t):
            drift.append((now, player.lag_ms(now)))
    return Hearing(spoken, drift)


def draw(figure: Figure) -> None:
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 3))
    figure.suptitle(
        "One answer of a vLLM-Omni that generates at 1.5 times real time, as it is heard",
        x=0.01,
        ha="left",
        fontsize=11,
        fontweight="bold",
    )
    page_ms = Settings().alerts.drift_page_ms
    for lane, (name, words) in enumerate(SHOWN.items()):
        colour = STREAM_COLOURS[lane]
        heard = hearing(name)
        bars = [(start, end - start) for start, end in heard.spoken]
        above.broken_barh(bars, (-lane - 0.3, 0.6), color=colour)
        for (_, end), (start, _) in zip(heard.spoken, heard.spoken[1:], strict=False):
            above.annotate(
                f"silence\n{start - end:.2f} s", ((start + end) / 2, -lane), ha="center", va="center"
            )
        below.plot(*zip(*heard.drift, strict=True), color=colour)
        below.annotate(
            f"{round(heard.drift[-1][1])} ms".replace("-", "\N{MINUS SIGN}"),
            (1, heard.drift[-1][1]),
            (4, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            va="center",
            color=colour,
            annotation_clip=False,
        )
        above.annotate(
            words,
            (0, -lane),
            (-6, 0),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            va="center",
            color=colour,
            annotation_clip=False,
        )
    above.set_title("speech heard", loc="left", fontsize=9)
    above.set_ylim(-len(SHOWN) + 0.4, 0.5)
    above.set_yticks([])
    above.grid(False)
    below.set_title("omni_codec_drift_ms: voice minus picture (ms)", loc="left", fontsize=9)
    below.set_xlim(0, LENGTH_S)
    below.set_ylim(top=250)
    for level in (page_ms, -page_ms):
        below.axhline(level, color=INK, linewidth=0.7, linestyle=(0, (4, 3)), zorder=1)
    below.axhspan(below.get_ylim()[0], -page_ms, color=STATE_COLOURS["pending"], alpha=0.12, zorder=0)
    below.annotate(
        f"pages past ±{page_ms:g} ms", (0, page_ms), (3, 3), textcoords="offset points", fontsize=7.5
    )
    below.set_xlabel("seconds since the question")


def main(path: Path) -> None:
    picture = io.BytesIO()
    with style.context(STYLE, after_reset=True):
        figure = Figure(figsize=(9.6, 4.0), layout="constrained")
        draw(figure)
        figure.savefig(
            picture,
            format=path.suffix[1:],
            dpi=160,
            metadata={"Date" if path.suffix == ".svg" else "Software": None},
        )
    path.write_bytes(picture.getvalue())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
