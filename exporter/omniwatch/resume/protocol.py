"""Parse requests and build answers of the resume protocol: headers and bodies. Pure.

    POST   /v1/resume        {"stream": S, "last_good_id": N, "part"?, "rest"?, "attempt"?, …}               206
    GET    /v1/resume        X-Omni-Resume: S, Last-Event-ID: N or N.part                                    200
    DELETE /v1/resume        X-Omni-Resume: S: the client has hung up and will not be back                   204
    POST   /v1/rtx           {"stream": S, "from_id": N, "count": C}                                         206
    POST   /v1/realign       {"stream": S, "shift_ms": D}                                                    204

A stream's id is its key, together with the `Authorization` that the chat began with, if there was one. The model server's
own check does not see these requests. No URL carries the id, for access logs keep URLs.

The plain form `POST /v1/resume {"last_good_id": N}` names its stream in the header `X-Omni-Resume`. A streamed chat asked
for again with that header and `Last-Event-ID`, as clients of server-sent events do, is resumed and not begun anew.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from omniwatch import frames
from omniwatch.events import Count, Millis, Span
from omniwatch.frames import add
from omniwatch.resume import opus
from omniwatch.tap import partial_json, stream_name

CHAT, RESUME, RTX, REALIGN = "/v1/chat/completions", "/v1/resume", "/v1/rtx", "/v1/realign"
PATHS = (RESUME, RTX, REALIGN)
STREAM_HEADER = b"x-omni-resume"
RESUMABLE = "omniwatch=resume"
"""The parameter of `Accept: text/event-stream` by which a client says that it can come back."""
MAX_BODY = 4096
"""The longest body of a request to anything but the chat, bytes."""

EXPOSED = (
    b"content-range, x-omni-resume, x-omni-result, x-omni-first-id, x-omni-frame-ms, x-omni-cache-win, "
    b"x-omni-client-win, x-omni-grace-s, x-omni-heartbeat-s"
)

Headers = list[tuple[bytes, bytes]]
Form = Literal["binary", "sse"]
StreamId = str
_ID = re.compile(r"[A-Za-z0-9_-]{20,64}\Z")
_PLACE = re.compile(r"([0-9]{1,10})(?:\.([0-9]{1,10}))?\Z")
_IDS = 2**32


class RefusedError(Exception):
    """A request that is not granted: the answer's status, what to say, and the `result` it is counted as."""

    def __init__(
        self, status: int, message: str, result: str = "refused", headers: Headers | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.result = result
        self.headers = headers or []


class ResumeRequest(msgspec.Struct):
    """Where a client that comes back stands: it has everything up to (last_good_id, part).

    `rest` asks only for what follows, where otherwise the whole turn would be sent again. `attempt` numbers a client's requests: one that
    arrives after a later one is refused. When it asked, it had heard nothing for `outage_ms`, and needed the next frame in `due_ms`
    (negative: so long ago). `rtt_ms` is its estimate of the round trip.
    """

    last_good_id: Count
    stream: str | None = None
    part: Count = 0
    rest: bool = False
    attempt: Count | None = None
    outage_ms: Span | None = None
    due_ms: Millis | None = None
    rtt_ms: Span | None = None


class RtxRequest(msgspec.Struct):
    """Which frames to send once more."""

    from_id: Count
    count: Count
    stream: str | None = None


class RealignRequest(msgspec.Struct):
    """The client forced its audio back onto the picture; `shift_ms` is the drift that this took away."""

    shift_ms: Millis
    stream: str | None = None


class Head(NamedTuple):
    """An answer's status and headers."""

    status: int
    headers: Headers


def header(headers: Headers, name: bytes) -> str | None:
    """Return a request header's value, None when it is absent."""
    return next((value.decode("latin-1") for key, value in headers if key.lower() == name), None)


def unpadded(headers: Headers) -> int | None:
    """Return how long a question is without its last byte, where its client says that this is padding; else None."""
    length = re.fullmatch("[1-9][0-9]{0,14}", header(headers, b"content-length") or "")
    return int(length[0]) - 1 if length and header(headers, b"x-omni-padding") == "1" else None


def wanted(headers: Headers) -> Form | None:
    """Return the form of frames that is asked for, None when none is: `text/event-stream` alone is any client's of events."""
    kinds = set()
    for kind, params in _accepted(headers):
        kinds.add(f"{kind};{RESUMABLE}" if RESUMABLE in params else kind)
    if frames.MEDIA_TYPE in kinds:
        return "binary"
    comes_back = "text/event-stream" in kinds and header(headers, STREAM_HEADER)
    return "sse" if f"text/event-stream;{RESUMABLE}" in kinds or comes_back else None


def wanted_opus(headers: Headers) -> int | None:
    """Return the bit rate at which frames are asked for in Opus (`;codec=opus;bitrate=32000`), None where they are not."""
    for kind, params in _accepted(headers):
        said = dict(param.partition("=")[::2] for param in params)
        if kind == frames.MEDIA_TYPE and said.get("codec", "").strip('"') == "opus":
            rates = {str(rate): rate for rate in opus.BITRATES}
            return rates.get(said.get("bitrate", "").strip('"'), opus.BITRATES[0])
    return None


def _accepted(headers: Headers) -> Iterator[tuple[str, list[str]]]:
    """Yield the media types of `Accept`, each with its parameters."""
    for item in (header(headers, b"accept") or "").lower().split(","):
        kind, *params = ("".join(part.split()) for part in item.split(";"))
        if not {"q=0", "q=0.0", "q=0.00", "q=0.000"}.intersection(params):
            yield kind, params


R = TypeVar("R", ResumeRequest, RtxRequest, RealignRequest)


def parse(kind: type[R], body: bytes, headers: Headers) -> tuple[R, StreamId]:
    """Read a request's body and the stream it names, there or in the header. Raises RefusedError."""
    try:
        request = msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(400, f"the body does not hold: {error}") from error
    return request, request.stream if request.stream is not None else named_stream(headers)


def named_stream(headers: Headers) -> StreamId:
    """Return the stream that the header `X-Omni-Resume` names. Raises RefusedError."""
    stream = header(headers, STREAM_HEADER)
    if stream is None:
        raise RefusedError(
            400,
            "which stream? Send the header X-Omni-Resume, as the answer of the chat has it. A body may name it instead: "
            '{"stream": "…"}',
        )
    return stream


def from_last_event_id(headers: Headers) -> ResumeRequest | None:
    """Read `Last-Event-ID`, None when it is absent. Raises RefusedError."""
    value = header(headers, b"last-event-id")
    if value is None:
        return None
    match = _PLACE.match(value)
    frame, part = (int(match[1]), int(match[2] or 0)) if match else (_IDS, 0)
    if frame >= _IDS or part >= _IDS:
        raise RefusedError(
            400, "Last-Event-ID: expected a frame id, or frame.part, as the stream's events have it"
        )
    return ResumeRequest(last_good_id=frame, part=part)


def is_id(stream: StreamId) -> bool:
    """Whether a stream's name could be one of ours."""
    return _ID.match(stream) is not None


def opening(
    upstream: Headers, media_type: str, stream: StreamId, first_id: int, windows: dict[str, str]
) -> Headers:
    """Return the headers of a chat's answer in frames: the model server's own, and what a client needs to come back."""
    ours = {b"content-type", b"content-length", b"cache-control"}.union(
        name.lower() for name, _ in cross_origin(upstream)
    )
    kept = [(name, value) for name, value in upstream if name.lower() not in ours] + cross_origin(upstream)
    return kept + common(media_type, stream) + _encoded({"x-omni-first-id": str(first_id)} | windows)


def cross_origin(upstream: Headers) -> Headers:
    """Return the model server's CORS headers, which hold for all answers of its stream."""
    kept = [
        pair
        for pair in upstream
        if pair[0].lower().startswith(b"access-control-") or pair[0].lower() == b"vary"
    ]
    if any(name.lower() == b"access-control-allow-origin" for name, _ in kept):
        kept.append((b"access-control-expose-headers", EXPOSED))
    return kept


def authorization(headers: Headers) -> bytes:
    """Return the digest of the `Authorization` that was sent; b"" where none was."""
    value = next((value for key, value in headers if key.lower() == stream_name.AUTHORIZATION), b"")
    return hashlib.sha256(value).digest() if value else b""


def common(media_type: str, stream: StreamId) -> Headers:
    """Return the headers of every answer that streams."""
    fields = {
        "content-type": media_type,
        "cache-control": "no-store",
        "x-accel-buffering": "no",
        STREAM_HEADER.decode(): stream,
    }
    return _encoded(fields)


def content_range(first_id: int, last_id: int, *, ended: bool) -> Headers:
    """Return `Content-Range` of frames first_id … last_id; open while the turn goes on, "*" when no frame is left."""
    if not ended:
        value = f"frames {first_id}-*/*"
    elif first_id == add(last_id, 1):
        value = "frames */*"
    else:
        value = f"frames {first_id}-{last_id}/*"
    return _encoded({"content-range": value})


def refused(refusal: RefusedError) -> tuple[Head, bytes]:
    """Return a refusal as an answer, its error in the form of the model server's own."""
    kind = "invalid_request_error" if refusal.status < 500 else "server_error"
    error: dict[str, Any] = {"message": str(refusal), "type": kind, "param": None, "code": refusal.status}
    body = msgspec.json.encode({"error": error})
    fields = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "cache-control": "no-store",
    }
    return Head(refusal.status, _encoded(fields) + refusal.headers), body


def _encoded(fields: dict[str, str]) -> Headers:
    return [(name.encode(), value.encode()) for name, value in fields.items()]


class _Named(msgspec.Struct):
    user: str | None = None


_named = msgspec.json.Decoder(_Named)


def address(client: tuple[str, int] | None) -> str:
    """Return the address of a client's connection."""
    return client[0] if client else "local"


def client_name(headers: Headers, body: bytes, client: tuple[str, int] | None) -> str:
    """Name the client behind a chat: by its header `X-Omni-Stream`, else the request's `user`, else its address."""
    named = partial_json.read(_named, body) if len(body) <= stream_name.MAX_BODY_BYTES else None
    return stream_name.stated_name(headers, named.user if named else None) or (
        client[0] if client else "local"
    )
