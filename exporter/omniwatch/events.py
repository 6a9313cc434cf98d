"""The event contract, version 1: what a speech server writes, one JSON object a line.

Times (`t`) are seconds on the server's realtime clock, media positions are milliseconds. A writer that numbers its
lines gives `w`, its own id, new at each start, and `n`, 0, 1, 2 … within `w`: from them the reader counts what it
lost and skips what it has seen.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta

MAX_LINE_BYTES = 65536
"""The longest line of the contract, its end not counted."""

Seconds = Annotated[float, Meta(ge=0, le=1e11)]
Millis = Annotated[float, Meta(ge=-1e12, le=1e12)]
Span = Annotated[float, Meta(ge=0, le=1e9)]
Name = Annotated[str, Meta(min_length=1, max_length=64)]
Turn = Name | Annotated[int, Meta(ge=0, le=2**63 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**32 - 1)]
Serial = Annotated[int, Meta(ge=0, le=2**53)]


class Event(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False, tag_field="ev"):
    """What every event has."""

    t: Seconds
    stream: Name
    w: Name | None = None
    n: Serial = 0


class StreamStart(Event, tag="stream_start"):
    """A client is connected; `peer` is its "ip:port"."""

    peer: Annotated[str, Meta(max_length=64)] | None = None
    codec_hz: Annotated[float, Meta(gt=0, le=1000)] = 12.5
    kind: Annotated[str, Meta(max_length=64)] | None = None


class Video(Event, tag="video"):
    """A video frame of the client's picture was received."""

    pts_ms: Millis
    frame_id: int | str | None = None


class TurnStart(Event, tag="turn"):
    """The client's text was received: the server should now speak."""

    turn: Turn
    chars: Count | None = None


class Audio(Event, tag="audio"):
    """Speech was handed to the network: one codec frame, or a chunk of several."""

    dur_ms: Annotated[float, Meta(gt=0, le=600_000)] = 80.0
    turn: Turn | None = None
    pts_ms: Millis | None = None
    video_pts_ms: Millis | None = None
    frame_id: Count | None = None
    checksum: Annotated[int, Meta(ge=0, le=65535)] | None = None
    codes: Annotated[list[Annotated[int, Meta(ge=0, le=65535)]], Meta(max_length=256)] | None = None
    expert_mask: Annotated[int, Meta(ge=0, le=255)] | None = None


class Played(Event, tag="played"):
    """The client's own playhead: it replaces the player model's position from then on."""

    played_ms: Millis
    turn: Turn | None = None


class TurnEnd(Event, tag="turn_end"):
    """The server finished or gave up speaking."""

    turn: Turn
    reason: str


class Rtt(Event, tag="rtt"):
    """The client's own measurement: text sent to first speech received, on the client's clock."""

    rtt_ms: Span
    turn: Turn | None = None


class Realign(Event, tag="realign"):
    """Audio was forced back onto the picture; `shift_ms` is the drift that this took away, sign included."""

    shift_ms: Millis


class Rtx(Event, tag="rtx"):
    """Frames were asked for again."""

    from_id: Count
    count: Count
    result: str


class Resume(Event, tag="resume"):
    """A client came back; `extra_ms` is how much later the next unheard frame plays than without the cut."""

    last_good_id: Count
    result: str
    first_id: Count | None = None
    replayed: Count | None = None
    latency_ms: Span | None = None
    extra_ms: Span | None = None
    outage_ms: Span | None = None


class StreamEnd(Event, tag="stream_end"):
    """The client is gone for good."""

    reason: str


AnyEvent = (
    StreamStart | Video | TurnStart | Audio | Played | TurnEnd | Rtt | Realign | Rtx | Resume | StreamEnd
)
EV_OF: dict[type[Event], str] = {kind: str(kind.__struct_config__.tag) for kind in get_args(AnyEvent)}
"""The `ev` of each struct, in the contract's order."""


class Unknown(msgspec.Struct, gc=False):
    """A well-formed line whose `ev` this version does not know: counted and skipped, its number still taken."""

    ev: str
    w: Name | None = None
    n: Serial = 0


class Invalid(msgspec.Struct, gc=False):
    """A line that is no event: `reason` is one of REASONS, `detail` says where, for the log."""

    reason: str
    detail: str


REASONS = ("encoding", "json", "fields", "nul", "oversize", "truncated")
"""Why a line was refused: not UTF-8, not JSON, a field missing or out of range, NUL bytes, over 64 KiB, or cut short
(a file that ended, or was rotated away, in the middle of it)."""

_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(AnyEvent)
_any_ev = msgspec.json.Decoder(Unknown)
_known = frozenset(EV_OF.values())


def decode(line: bytes) -> AnyEvent | Unknown | Invalid:
    """Decode one line (its end not included). Never raises on content."""
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return Invalid("encoding", str(error))
    try:
        event: AnyEvent = _decoder.decode(line)
        return event
    except msgspec.ValidationError as error:
        return _not_an_event(line, error)
    except (msgspec.DecodeError, RecursionError) as error:
        return Invalid("json", str(error))


def _not_an_event(line: bytes, error: msgspec.ValidationError) -> Unknown | Invalid:
    try:
        other = _any_ev.decode(line)
    except (msgspec.ValidationError, RecursionError):
        return Invalid("fields", str(error))
    except msgspec.DecodeError as malformed:
        return Invalid("json", str(malformed))
    return Invalid("fields", str(error)) if other.ev in _known else other


def decode_lines(chunk: bytes) -> list[AnyEvent | Unknown | Invalid]:
    """Decode whole lines, empty ones skipped, in order: all at once where all are good, else one by one."""
    try:
        if not chunk.isascii():
            chunk.decode()
        events: list[AnyEvent | Unknown | Invalid] = _decoder.decode_lines(chunk)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        events = []
    # msgspec takes a line end for any white space: two objects on a line, or one over two lines, must not pass.
    if len(events) == chunk.count(b"\n") == chunk.count(b"\n{") + chunk.startswith(b"{"):
        return events
    return [decode(line) for line in chunk.split(b"\n") if line.strip()]


def encode(event: Event) -> bytes:
    """Encode one event as a line of the contract, its end included."""
    return msgspec.json.encode(event) + b"\n"


def json_schema() -> dict[str, Any]:
    """The contract as a JSON Schema of one line, made from the structs above."""
    schema = msgspec.json.schema(AnyEvent)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Omniwatch event, version 1",
    } | schema


if __name__ == "__main__":
    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
