"""What is said of a turn: by the server in the head of its first answer, by a client that comes back. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_DECIMAL = re.compile(r"([0-9]+)(?:\.([0-9]*))?(?:e[+-]?[0-9]{1,2})?")
_WHOLE = re.compile(r"[0-9]{1,10}")
MAX_DIGITS = 15
GRACE_AND_S = 5.0
"""The server notices later than the client that nothing passes: its grace begins so much later at most."""


class RefusedError(ValueError):
    """An answer that no turn can be heard from; the message is its status, or says which header is odd."""


class Terms(NamedTuple):
    """How a turn is numbered, and for how long and how much of it the server holds."""

    stream: str = ""
    """The id to resume under."""
    first_id: int = 0
    frame_ms: float = 80.0
    heartbeat_s: float = 0.0
    """How often the server says that it is still here, where it says so."""
    grace_s: float = 30.0
    """How long it holds the turn for a client that is away."""
    cache_win: int | None = None
    """Frames that it holds for certain, where it says how many."""

    @property
    def gone_s(self) -> float:
        """How long after it was last heard the server holds nothing more."""
        return self.grace_s + GRACE_AND_S


def read(status: int, headers: Mapping[str, str]) -> Terms:
    """Return the terms of an answer; header names are in lower case. Raises RefusedError."""
    stream = headers.get("x-omni-resume")
    if status != 200 or not stream:
        raise RefusedError(str(status))
    usual = Terms()
    return Terms(
        stream,
        _whole(headers, "x-omni-first-id", 0, 2**32 - 1),
        _decimal(headers, "x-omni-frame-ms", usual.frame_ms),
        _decimal(headers, "x-omni-heartbeat-s", usual.heartbeat_s),
        _decimal(headers, "x-omni-grace-s", usual.grace_s),
        _whole(headers, "x-omni-cache-win", 1, 2**31 - 1) if "x-omni-cache-win" in headers else None,
    )


def question(stream: str, place: tuple[int, int], attempt: int, times: Mapping[str, float]) -> dict[str, Any]:
    """Return the body of `POST /v1/resume`; `times` in seconds."""
    body = {"stream": stream, "last_good_id": place[0], "part": place[1], "rest": True, "attempt": attempt}
    return body | {name: round(seconds * 1000, 3) for name, seconds in times.items()}


def _whole(headers: Mapping[str, str], name: str, least: int, most: int) -> int:
    said = headers.get(name, "")
    if not _WHOLE.fullmatch(said) or not least <= int(said) <= most:
        raise RefusedError(f"odd {name}")
    return int(said)


def _decimal(headers: Mapping[str, str], name: str, usual: float) -> float:
    if name not in headers:
        return usual
    match = _DECIMAL.fullmatch(headers[name])
    if not match or len(match[1] + (match[2] or "")) > MAX_DIGITS:
        raise RefusedError(f"odd {name}")
    return float(match[0])
