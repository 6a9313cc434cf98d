"""Parse the response headers that describe a resumable turn; build the body of a resume request. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_DECIMAL = re.compile(r"([0-9]+)(?:\.([0-9]*))?(?:e[+-]?[0-9]{1,2})?")
_WHOLE = re.compile(r"[0-9]{1,10}")
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
MAX_DIGITS = 15
MAX_FRAME_MS = 10_000
MAX_HEARTBEAT_S = 86_400
MAX_GRACE_S = 604_800
MAX_CACHE_WIN = 1_000_000
GRACE_SLACK_S = 5.0
"""Longest delay until the server notices the disconnect, seconds: its grace begins up to this much later."""


class RefusedError(ValueError):
    """A response that begins no resumable turn. The message is its status, or names the invalid header."""


class TurnHeaders(NamedTuple):
    """State how a turn is numbered, and how much of it the server keeps for how long."""

    stream: str = ""
    """The id to resume under."""
    first_id: int = 0
    frame_ms: float = 80.0
    heartbeat_s: float = 0.0
    """Seconds between the server's heartbeats; 0 where it states none."""
    grace_s: float = 30.0
    """Seconds that the server keeps the turn for a client that is disconnected."""
    cache_win: int | None = None
    """Frames that the server keeps for certain, where it states how many."""

    @property
    def gone_s(self) -> float:
        """Seconds after the last data until the server has certainly discarded the turn."""
        return self.grace_s + GRACE_SLACK_S


def parse_turn_headers(status: int, headers: Mapping[str, str]) -> TurnHeaders:
    """Parse the headers of a turn's first response; names are in lower case. Raises RefusedError."""
    stream = headers.get("x-omni-resume")
    if status != 200 or not stream:
        raise RefusedError(str(status))
    if not _ID.fullmatch(stream):
        raise RefusedError("odd x-omni-resume")
    usual = TurnHeaders()
    return TurnHeaders(
        stream,
        _whole(headers, "x-omni-first-id", 0, 2**32 - 1),
        _decimal(headers, "x-omni-frame-ms", usual.frame_ms, 1, MAX_FRAME_MS),
        _decimal(headers, "x-omni-heartbeat-s", usual.heartbeat_s, 0, MAX_HEARTBEAT_S),
        _decimal(headers, "x-omni-grace-s", usual.grace_s, 0, MAX_GRACE_S),
        _whole(headers, "x-omni-cache-win", 1, MAX_CACHE_WIN) if "x-omni-cache-win" in headers else None,
    )


def resume_body(
    stream: str, place: tuple[int, int], attempt: int, times: Mapping[str, float]
) -> dict[str, Any]:
    """Build the body of `POST /v1/resume`; `times` in seconds."""
    body = {"stream": stream, "last_good_id": place[0], "part": place[1], "rest": True, "attempt": attempt}
    return body | {name: round(seconds * 1000, 3) for name, seconds in times.items()}


def _whole(headers: Mapping[str, str], name: str, least: int, most: int) -> int:
    said = headers.get(name, "")
    if not _WHOLE.fullmatch(said) or not least <= int(said) <= most:
        raise RefusedError(f"odd {name}")
    return int(said)


def _decimal(headers: Mapping[str, str], name: str, usual: float, least: float, most: float) -> float:
    if name not in headers:
        return usual
    match = _DECIMAL.fullmatch(headers[name])
    if not match or len(match[1] + (match[2] or "")) > MAX_DIGITS:
        raise RefusedError(f"odd {name}")
    value = float(match[0])
    if not least <= value <= most:
        raise RefusedError(f"odd {name}")
    return value
