"""Handle a returning client's requests: resume, retransmit, report a realignment, hang up."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from omniwatch import events
from omniwatch.frames import add, distance
from omniwatch.resume import protocol
from omniwatch.resume.carrier import Carrier
from omniwatch.resume.protocol import Head, Headers, R, RefusedError, ResumeRequest, RtxRequest
from omniwatch.resume.sender import Sender
from omniwatch.resume.store import ResumableTurn, Store
from omniwatch.settings import Settings
from omniwatch.system.token_bucket import TokenBucket, TokenBuckets
from omniwatch.tap.asgi import Receive, Scope, Send

BODY_S = 10.0
"""How long the body of a request may take to arrive."""
JUNK, UNAUTHORIZED = "junk", "unauthorized"
"""Results of requests that no client of ours sends, and of those with another key than the chat's: counted apart."""
NOBODY = "unknown"
"""The `stream` of events about requests that name no stream there is."""
STALE = "stale"
"""Result for an attempt superseded by a newer one of the same client; not reported as an event."""
REPORTED_PER_S = 10.0
"""Refused requests written as events, at most; a flood of them must not flood the event file."""

Emit = Callable[[events.Event], None]


class GrantedResume(NamedTuple):
    """A granted resume: when it arrived, its request, and the entry to continue from.

    `again`: the client stands where it stood at its last attempt, of which it got nothing: it is the same return.
    """

    at: float
    request: ResumeRequest
    stream: ResumableTurn
    result: str
    entry: int
    again: bool


class Endpoints:
    """Answers what is asked about the streams of a store; what cannot be granted raises RefusedError."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        emit: Emit,
        clock: Callable[[], float],
        is_young: Callable[[], bool],
    ) -> None:
        limits = settings.resume
        now = asyncio.get_running_loop().time
        self._store = store
        self._settings = settings
        self._emit = emit
        self._clock = clock
        self._now = now
        self._is_young = is_young
        self._misses = TokenBuckets(limits.misses_per_s, limits.misses_burst)
        self._reports = TokenBucket(REPORTED_PER_S, 2 * REPORTED_PER_S, now())

    async def resume(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/resume`."""
        at, headers = self._now(), scope["headers"]
        try:
            body = await read_body(receive)
            place = protocol.from_last_event_id(headers)
            if place and not body.strip():
                body = b'{"last_good_id":0}'
            request, stream_id = protocol.parse(ResumeRequest, body, headers)
            if place:
                request.last_good_id, request.part = place.last_good_id, place.part
        except RefusedError as refusal:
            bounded = self._misses.take(protocol.address(scope.get("client")), self._now())
            self._report(
                events.Resume(t=self._clock(), m=self._now(), stream=NOBODY, last_good_id=0, result=JUNK)
            )
            if bounded:
                raise
            raise _too_many(JUNK) from refusal
        await self.go_on(at, request, stream_id, 206, scope, receive, send)

    async def resume_by_headers(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /v1/resume`: from the beginning, or from `Last-Event-ID` on."""
        stream_id = protocol.named_stream(scope["headers"])
        request = protocol.from_last_event_id(scope["headers"])
        stream = self._store.get(stream_id)
        first = add(stream.turn.first_id, -1) if stream else 0
        request = request or ResumeRequest(last_good_id=first)
        await self.go_on(self._now(), request, stream_id, 200, scope, receive, send)

    async def go_on(
        self,
        at: float,
        request: ResumeRequest,
        stream_id: str,
        status: int,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Send a stream on from where a client stands, as its newest and only listener."""
        name = NOBODY
        try:
            stream = self._find(stream_id, scope)
            name = stream.name
            if not stream.resumes.take(self._now()):
                raise _too_many()
            asked = self._place(at, request, stream)
        except RefusedError as refusal:
            if refusal.result != STALE:
                refused = events.Resume(
                    t=self._clock(),
                    m=self._now(),
                    stream=name,
                    last_good_id=request.last_good_id,
                    result=refusal.result,
                )
                self._report(refused)
            raise
        turn = stream.turn
        first = add(request.last_good_id, 1) if asked.entry or asked.result == "hit" else turn.first_id
        headers = [
            *protocol.common(turn.encoder.media_type, stream.id),
            *stream.cross_origin,
            *protocol.content_range(first, turn.last_id, ended=turn.ended is not None),
            (b"x-omni-result", asked.result.encode()),
        ]
        sent_before = turn.sent_id
        frame_ms = self._settings.frames.frame_ms
        had_ms = (distance(turn.first_id, request.last_good_id) + 1) * frame_ms
        stream.claim.heard(had_ms, (request.outage_ms or 0.0) / 1000)
        carrier = Carrier.of(stream.claim, scope, frame_ms)
        sender = Sender(self._store, stream, asked.entry, send, self._settings.resume, carrier)
        replayed = max(0, distance(first, sent_before) + 1)
        begun = partial(self._resumed, asked, first, replayed)
        await sender.run(Head(status, headers), disconnected(receive), begun)

    def _place(self, at: float, request: ResumeRequest, stream: ResumableTurn) -> GrantedResume:
        if request.attempt is not None:
            if request.attempt < stream.attempt:
                raise RefusedError(409, "an attempt made after this one has come before it", STALE)
            stream.attempt = request.attempt
        found = stream.turn.find(request.last_good_id, request.part, rest=request.rest)
        if found.result == "ahead":
            sent = distance(stream.turn.first_id, stream.turn.sent_id) + 1
            headers: Headers = [(b"content-range", b"frames */%d" % sent)]
            raise RefusedError(416, "last_good_id is ahead of what was sent", "ahead", headers)
        if found.result == "gone":
            raise RefusedError(410, "frames after last_good_id are held no longer", "gone")
        place = (request.last_good_id, request.part)
        again, stream.returned = place == stream.returned, place
        return GrantedResume(at, request, stream, found.result, found.entry, again)

    def _resumed(self, asked: GrantedResume, first: int, replayed: int) -> None:
        request, now = asked.request, self._now()
        latency_ms = (now - asked.at) * 1000
        extra_ms = None
        if request.due_ms is not None:
            # All on the client's clock from when it asked; uncut, the frame would have come when it was made.
            rtt_ms = request.rtt_ms or 0.0
            made = asked.stream.made_at_of(add(request.last_good_id, 1))
            would_come = min(latency_ms, (made - asked.at) * 1000) + rtt_ms
            extra_ms = max(0.0, latency_ms + rtt_ms - max(request.due_ms, would_come))
        self._emit(
            events.Resume(
                t=self._clock(),
                m=self._now(),
                stream=asked.stream.name,
                last_good_id=request.last_good_id,
                first_id=first,
                result=asked.result,
                replayed=replayed,
                latency_ms=round(latency_ms, 3),
                extra_ms=None if extra_ms is None else round(extra_ms, 3),
                outage_ms=request.outage_ms,
                again=asked.again or None,
            )
        )

    async def rtx(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/rtx`."""
        name, from_id, count = NOBODY, 0, 0
        try:
            request, stream_id = await self._parsed(RtxRequest, scope, receive)
            from_id, count = request.from_id, request.count
            stream = self._find(stream_id, scope)
            name = stream.name
            most = self._settings.frames.cache_win
            if not 1 <= count <= most:
                raise RefusedError(400, f"count: expected a whole number from 1 to {most}, got {count}")
            if not stream.rtxs.take(self._now()):
                raise _too_many()
            result, found = stream.turn.speech(from_id, count)
            if not found:
                ahead = distance(stream.turn.sent_id, from_id) > 0
                status, why = (416, "ahead of what was sent") if ahead else (410, "held no longer")
                raise RefusedError(status, f"from_id: these frames are {why}", "miss")
        except RefusedError as refusal:
            # The contract's results of an rtx know no "gone": a stream that is not there is a miss.
            result = refusal.result if refusal.result in ("refused", JUNK, UNAUTHORIZED) else "miss"
            self._report(
                events.Rtx(
                    t=self._clock(), m=self._now(), stream=name, from_id=from_id, count=count, result=result
                )
            )
            raise
        body = b"".join(wire for _, wire in found)
        headers = [
            *protocol.common(stream.turn.encoder.media_type, stream.id),
            *stream.cross_origin,
            *protocol.content_range(found[0][0], found[-1][0], ended=True),
            (b"content-length", b"%d" % len(body)),
        ]
        await answer(send, Head(206, headers), body)
        self._emit(
            events.Rtx(
                t=self._clock(), m=self._now(), stream=name, from_id=from_id, count=count, result=result
            )
        )

    async def realign(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/realign`."""
        request, stream_id = await self._parsed(protocol.RealignRequest, scope, receive)
        stream = self._find(stream_id, scope)
        if not stream.rtxs.take(self._now()):
            raise _too_many()
        self._emit(
            events.Realign(t=self._clock(), m=self._now(), stream=stream.name, shift_ms=request.shift_ms)
        )
        await answer(send, Head(204, []), b"")

    async def hang_up(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """`DELETE /v1/resume`."""
        self._store.drop(self._find(protocol.named_stream(scope["headers"]), scope))
        await answer(send, Head(204, []), b"")

    async def _parsed(self, kind: type[R], scope: Scope, receive: Receive) -> tuple[R, str]:
        """Read a request. An invalid one counts as junk; an address that sends too many gets 429."""
        try:
            return protocol.parse(kind, await read_body(receive), scope["headers"])
        except RefusedError as refusal:
            refusal.result = JUNK
            if not self._misses.take(protocol.address(scope.get("client")), self._now()):
                raise _too_many(JUNK) from refusal
            raise

    def _find(self, stream_id: str, scope: Scope) -> ResumableTurn:
        stream = self._store.get(stream_id) if protocol.is_id(stream_id) else None
        is_its_own = stream and (
            not stream.authorization
            or hmac.compare_digest(stream.authorization, protocol.authorization(scope["headers"]))
        )
        if stream and is_its_own:
            return stream
        ours = stream is not None or self._store.is_gone(stream_id) or self._store.issued(stream_id)
        if not self._misses.take(protocol.address(scope.get("client")), self._now()):
            raise _too_many("refused" if ours else JUNK)
        if stream:
            raise RefusedError(404, "there is no such stream for this Authorization", UNAUTHORIZED)
        if ours:
            raise RefusedError(410, "this stream is held no longer", "gone")
        # A client of ours can have an unknown id only from before a restart.
        from_before = protocol.is_id(stream_id) and self._is_young()
        raise RefusedError(404, "there is no such stream", "unknown" if from_before else JUNK)

    def _report(self, event: events.Event) -> None:
        if self._reports.take(self._now()):
            self._emit(event)


def _too_many(result: str = "refused") -> RefusedError:
    return RefusedError(429, "too many requests", result, [(b"retry-after", b"1")])


async def read_body(receive: Receive) -> bytes:
    """Read a small request body. Raises RefusedError when it is too long, too slow or cut off."""
    body = b""
    more = True
    now = asyncio.get_running_loop().time
    by = now() + BODY_S
    while more:
        try:
            message = await asyncio.wait_for(receive(), by - now())
        except asyncio.TimeoutError as error:
            raise RefusedError(408, "the body did not arrive") from error
        if message["type"] == "http.disconnect":
            raise RefusedError(400, "the client has left")
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > protocol.MAX_BODY:
            raise RefusedError(413, f"the body is longer than {protocol.MAX_BODY} bytes")
    return body


async def disconnected(receive: Receive) -> None:
    """Wait until the client leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def answer(send: Send, head: Head, body: bytes) -> None:
    """Send a whole answer."""
    await send({"type": "http.response.start", "status": head.status, "headers": head.headers})
    await send({"type": "http.response.body", "body": body})
