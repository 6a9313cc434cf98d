"""Run several turns one after another, and print them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from omniwatch.desk.probe import Client, Limits, Turn
from omniwatch.desk.probe.target import Target
from omniwatch.desk.probe.turn import Asking

HEADINGS = ("turn", "outcome", "first audio ms", "audio ms", "chunks", "underrun ms", "drift ms")
_widths = (4, 11, 14, 8, 6, 11, 8)


def open_client(target: Target, asking: Asking) -> Client:
    """Return a client for the target. Raises ImportError where the websocket's library is missing."""
    if target.kind == "realtime":
        from omniwatch.desk.probe.realtime import RealtimeClient

        return RealtimeClient(target, asking)
    if target.kind == "video":
        from omniwatch.desk.probe.video import VideoClient

        return VideoClient(target, asking)
    from omniwatch.desk.probe.chat import ChatClient

    return ChatClient(target, asking)


def converse(client: Client, turns: int) -> Iterator[Turn]:
    """Have so many turns, each given as it ends."""
    try:
        for number in range(1, turns + 1):
            yield client.turn(number)
    finally:
        client.close()


def heading(*, words: bool = False, stale: bool = False) -> str:
    """Return the table's first line; with `words` there is a column for the word error rate, with `stale` one for stale speech."""
    return _line(HEADINGS) + ("   words wrong" if words else "") + ("  stale ms" if stale else "")


def row(turn: Turn) -> str:
    """Return a turn's line in the table."""
    heard = turn.heard
    if heard.rtt_ms is None:
        return _line((str(turn.number), turn.outcome, *"-----")) + (
            "" if turn.words is None else f"{'-':>14}"
        )
    drift = "-" if heard.drift_ms is None else f"{heard.drift_ms:.1f}"
    numbers = (
        f"{heard.rtt_ms:.1f}",
        f"{heard.audio_ms:.1f}",
        str(heard.chunks),
        f"{heard.underrun_ms:.1f}",
        drift,
    )
    stale = "" if turn.stale_ms is None else f"{turn.stale_ms:>10.1f}"
    return _line((str(turn.number), turn.outcome, *numbers)) + _wrong(turn) + stale


def _wrong(turn: Turn) -> str:
    if turn.words is None:
        return ""
    rate = turn.words.rate
    return f"{'-' if rate is None else f'{rate:.1%}':>14}"


def _line(cells: Sequence[str]) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, _widths, strict=True))


def as_json(target: Target, turns: Sequence[Turn], limits: Limits) -> str:
    """Return the whole of it for programs. All times in milliseconds; null where there was nothing to measure."""
    first = [turn.heard.rtt_ms for turn in turns if turn.heard.rtt_ms is not None]
    document: dict[str, Any] = {
        "url": target.url,
        "turns": [
            {
                "turn": turn.number,
                "outcome": turn.outcome,
                "detail": turn.detail,
                **{name: _rounded(value) for name, value in asdict(turn.heard).items()},
                **({} if turn.stale_ms is None else {"stale_ms": _rounded(turn.stale_ms)}),
                **(
                    {}
                    if turn.words is None
                    else {"words": {**asdict(turn.words), "rate": _rounded(turn.words.rate)}}
                ),
            }
            for turn in turns
        ],
        "rtt_ms_median": _rounded(statistics.median(first)) if first else None,
        "rtt_ms_max": _rounded(max(first)) if first else None,
        "exceeded": exceeded(turns, limits),
    }
    return json.dumps(document, indent=2)


def exceeded(turns: Sequence[Turn], limits: Limits) -> list[str]:
    """Say, a line each, what was not good."""
    return [line for turn in turns for line in limits.exceeded(turn)]


def _rounded(value: float | None) -> float | None:
    return round(value, 3) if isinstance(value, float) else value
