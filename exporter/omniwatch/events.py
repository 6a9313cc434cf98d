"""The event contract, version 1.2: what a speech server writes, one JSON object a line.

Times (`t`) are seconds on the server's realtime clock, media positions are milliseconds. A writer that numbers its
lines gives `w`, its own id, new at each start, and `n`, 0, 1, 2 … within `w`: from them the reader counts what it
lost and skips what it has seen. `m` is the same moment as `t` on a clock of the server's that never steps (Linux'
CLOCK_MONOTONIC), in seconds: where it is given, a wall clock that is set in the middle of a turn moves no figure.
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
Bytes = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Word = Annotated[str, Meta(max_length=64)]


class Event(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False, tag_field="ev"):
    """What every event has."""

    t: Seconds
    """Time of the event on the server's realtime clock, s since 1970."""
    stream: Name
    """The client's stream: 1 to 64 characters."""
    m: Seconds | None = None
    """Time of the event on a clock that is never set, in seconds; optional, since 1.1."""
    w: Name | None = None
    """Id of the writer, new at each of its starts."""
    n: Serial = 0
    """Number of the line within `w`: 0, 1, 2 …"""


class StreamStart(Event, tag="stream_start"):
    """A client is connected; `peer` is its "ip:port"."""

    peer: Annotated[str, Meta(max_length=64)] | None = None
    """The client's address, "ip:port"."""
    codec_hz: Annotated[float, Meta(gt=0, le=1000)] = 12.5
    """Codec frames a second."""
    kind: Annotated[str, Meta(max_length=64)] | None = None
    """What the stream is, in the writer's words."""


class Video(Event, tag="video"):
    """A video frame of the client's picture was received."""

    pts_ms: Millis
    """Position of the frame in the client's picture."""
    frame_id: int | str | None = None
    """The client's own id of the frame."""


class TurnStart(Event, tag="turn"):
    """The client's text was received: the server should now speak."""

    turn: Turn
    """Id of the turn."""
    chars: Count | None = None
    """Length of the text, characters."""
    ear: Word | None = None
    """How the writer knows what arrives: "kernel", and `arrived` follows, else "sent". Absent: "sent". Since 1.2."""


class Audio(Event, tag="audio"):
    """Speech was handed to the network: one codec frame, or a chunk of several."""

    dur_ms: Annotated[float, Meta(gt=0, le=600_000)] = 80.0
    """Length of the speech."""
    turn: Turn | None = None
    """The turn it belongs to. Absent: the stream's last."""
    pts_ms: Millis | None = None
    """Position of the speech, as the server states it."""
    video_pts_ms: Millis | None = None
    """Position of the picture this speech belongs to. With `pts_ms`: stated drift."""
    frame_id: Count | None = None
    """Id of the codec frame: +1 every 80 ms, serial arithmetic (RFC 1982)."""
    checksum: Annotated[int, Meta(ge=0, le=65535)] | None = None
    """XOR checksum of the frame header."""
    codes: Annotated[list[Annotated[int, Meta(ge=0, le=65535)]], Meta(max_length=256)] | None = None
    """Codec codes of the frame, codebook 0 first."""
    expert_mask: Annotated[int, Meta(ge=0, le=255)] | None = None
    """Bit i: expert i took part."""
    silent: bool | None = None
    """The speech is digital silence. Absent: not known. Since 1.2."""


class Played(Event, tag="played"):
    """The client's own playhead: it replaces the player model's position from then on, unless its source is a guess."""

    played_ms: Millis
    """Speech of the turn that the client has played."""
    turn: Turn | None = None
    """The turn."""
    source: Word | None = None
    """Where the client has it from: "player", or as a guess "framework" or "model". Absent: "player". Since 1.2."""


class Arrived(Event, tag="arrived"):
    """So much of a turn's speech had reached the listener, as the server's kernel knows it. Since 1.2.

    `t` is the time of the question to the kernel. Written when `ms` has grown, else each second while speech is under way.
    Three seconds of speech under way without one mean the same as `ear` "sent".
    """

    turn: Turn
    """The turn."""
    ms: Span
    """Speech of the turn that had arrived, in ms."""
    ago_ms: Span = 0.0
    """How long before `t` the last of it arrived."""
    rtt_ms: Span | None = None
    """Smoothed round trip of the connection, as the kernel has it."""
    least_rtt_ms: Span | None = None
    """Least round trip of the connection, half of which the kernel's word took to come back. Absent: the least `rtt_ms`."""
    waiting: Bytes = 0
    """Bytes that the kernel holds and the client has not acknowledged."""
    retrans: Count = 0
    """Segments sent again since the last `arrived` of the turn."""
    window_ms: Span = 0.0
    """Time with the client's receive window closed, since the last `arrived` of the turn."""
    paused_ms: Span = 0.0
    """By how much the question was asked later than planned."""
    congestion: Word | None = None
    """Congestion control of the connection, such as "bbr": with the turn's first `arrived`, and when it is another."""
    ear: Word | None = None
    """Where "sent", the writer no longer knows: what has not arrived counts as arrived at `t`, the rest when handed over."""


class Text(Event, tag="text"):
    """The answer's first text was handed to the network, once a turn. Since 1.2."""

    turn: Turn
    """The turn."""


class Underrun(Event, tag="underrun"):
    """The client's player had nothing to play, by its own word. Since 1.2."""

    ms: Span
    """How long it had nothing to play, in ms."""
    source: Word
    """Where the client has it from: "player", or as a guess "framework" or "model"."""
    turn: Turn | None = None
    """The turn."""


class Interrupt(Event, tag="interrupt"):
    """The user spoke up while the turn was open or being heard. Since 1.2."""

    turn: Turn
    """The turn."""


class Fault(Event, tag="fault"):
    """The server told a client that something went wrong; the turn, if one failed by it, ends by itself. Since 1.2."""

    code: Word
    """The server's code; the reader counts those that it knows by name."""


class TurnEnd(Event, tag="turn_end"):
    """The server finished or gave up speaking."""

    turn: Turn
    """The turn."""
    reason: str
    """Why it ended, in the writer's words. The server's failure is "error" or "failed"; a request that was wrong is "refused"."""
    chars: Count | None = None
    """Length of the answer's text, characters. Since 1.2."""
    cjk: Count | None = None
    """Of these, Chinese, Japanese and Korean characters. Since 1.2."""


class Rtt(Event, tag="rtt"):
    """The client's own measurement: text sent to first speech received, on the client's clock."""

    rtt_ms: Span
    """Text sent until first speech received."""
    turn: Turn | None = None
    """The turn."""


class Realign(Event, tag="realign"):
    """Audio was forced back onto the picture; `shift_ms` is the drift that this took away, sign included."""

    shift_ms: Millis
    """Drift that the realignment took away, with its sign."""


class Rtx(Event, tag="rtx"):
    """Frames were asked for again."""

    from_id: Count
    """First frame asked for."""
    count: Count
    """Frames asked for."""
    result: str
    """What the server did."""


class Resume(Event, tag="resume"):
    """A client came back; `extra_ms` is how much later the next unheard frame plays than without the cut."""

    last_good_id: Count
    """Last frame the client had."""
    result: str
    """What the server did."""
    first_id: Count | None = None
    """First frame sent again."""
    replayed: Count | None = None
    """Frames sent again."""
    latency_ms: Span | None = None
    """Time the server took to answer the resume."""
    extra_ms: Span | None = None
    """How much later the next unheard frame plays than without the cut."""
    outage_ms: Span | None = None
    """How long the client was away."""
    again: bool | None = None
    """The client stands where it stood at its last attempt, of which it got nothing: the same return."""


class StreamEnd(Event, tag="stream_end"):
    """The client is gone for good."""

    reason: str
    """Why, in the writer's words."""


AnyEvent = (
    StreamStart
    | Video
    | TurnStart
    | Audio
    | Played
    | Arrived
    | Text
    | Underrun
    | Interrupt
    | Fault
    | TurnEnd
    | Rtt
    | Realign
    | Rtx
    | Resume
    | StreamEnd
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


REASONS = ("encoding", "json", "fields", "nul", "oversize", "truncated", "damaged")
"""Why a line was refused: not UTF-8, not JSON, a field missing or out of range, NUL bytes, over 64 KiB, cut short
(a file that ended, or was rotated away, in the middle of it), or in an entry of the journal that journalctl cannot read."""

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
    import inspect

    schema = msgspec.json.schema(AnyEvent)
    for struct in schema["$defs"].values():
        # Python 3.13 takes the indentation out of docstrings, earlier ones do not.
        if "description" in struct:
            struct["description"] = inspect.cleandoc(struct["description"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Omniwatch event, version 1.2",
    } | schema


if __name__ == "__main__":
    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")
