"""Send one HTTP request and take its answer in pieces, each with the time it came. The only place that knows httpx.

Every failure is a TurnFailedError in the probe's words: a benchmark counts it and does not try again.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
import httpx
import msgspec

from omniwatch.desk.probe import TurnFailedError
from omniwatch.media.sse import DONE, Events, TooLongError

MAX_EVENT_BYTES = 64 * 2**20
"""The longest event, and the longest answer: 15 minutes of speech."""
MAX_JSON_BYTES = 2**20
MAX_MODEL = 1024
"""Characters of a model's name."""
T = TypeVar("T")


@dataclass
class Server:
    """One endpoint. `body` is merged into every JSON request; `model` empty: whatever it serves."""

    part: str
    url: str
    model: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Calls:
    """How requests are made. `clock` gives seconds; `timeout_s` bounds each wait for something new."""

    client: httpx.AsyncClient
    clock: Callable[[], float]
    timeout_s: float


@dataclass
class Reply:
    """A response under way. `sent_t` is when the request's last byte had been handed to the kernel."""

    calls: Calls
    response: httpx.Response
    sent_t: float
    _pieces: AsyncIterator[bytes]
    _size: int = 0

    @property
    def kind(self) -> str:
        """The content type, lower case, without its parameters."""
        stated: str = self.response.headers.get("content-type", "")
        return stated.partition(";")[0].strip().lower()

    async def next(self, deadline: float) -> bytes | None:
        """Return the next piece, None at the end."""
        piece = await _waited(self.calls, deadline, anext(self._pieces, None))
        self._size += len(piece or b"")
        if self._size > MAX_EVENT_BYTES:
            raise TurnFailedError("malformed", f"an answer of more than {MAX_EVENT_BYTES} bytes")
        return piece

    async def json(self) -> Any:
        """Return the whole of a short answer, within one `timeout_s` for all of it."""
        body = bytearray()
        deadline = self.calls.clock() + self.calls.timeout_s
        while (piece := await self.next(deadline)) is not None:
            body += piece
            if len(body) > MAX_JSON_BYTES:
                raise TurnFailedError("malformed", f"JSON of more than {MAX_JSON_BYTES} bytes")
        try:
            # Unlike json, it takes no lone surrogates, which no file of results can hold.
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise TurnFailedError("malformed", f"no JSON: {bytes(body[:60])!r}") from error

    async def events(self) -> AsyncIterator[tuple[float, bytes]]:
        """Give each server-sent event's data with its time, up to data: [DONE]. Comments do not count as something new."""
        if self.kind != "text/event-stream":
            raise TurnFailedError(
                "malformed", f"expected text/event-stream, got {self.kind or 'no content type'}"
            )
        events, clock = Events(MAX_EVENT_BYTES), self.calls.clock
        deadline = clock() + self.calls.timeout_s
        while (piece := await self.next(deadline)) is not None:
            t = clock()
            try:
                found = events.feed(piece)
            except TooLongError as error:
                raise TurnFailedError("malformed", str(error)) from error
            for data in found:
                deadline = t + self.calls.timeout_s
                if data.strip() == DONE:
                    return
                yield t, data
        raise TurnFailedError("cut", "the answer ended without data: [DONE]")


@asynccontextmanager
async def post(
    calls: Calls, server: Server, path: str, content: bytes, content_type: str, accept: str
) -> AsyncIterator[Reply]:
    """Send a request; the answer's head is there when the context begins. Raises TurnFailedError unless it is a 200."""
    sent_t = -1.0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent_t
        yield content
        # The transport asks for more once it has handed over what it had.
        sent_t = calls.clock()

    headers = {
        "Content-Type": content_type,
        "Content-Length": str(len(content)),
        "Accept": accept,
        "Accept-Encoding": "identity",
        **server.headers,
    }
    request = calls.client.build_request("POST", server.url + path, content=body(), headers=headers)
    deadline = calls.clock() + calls.timeout_s
    response = await _waited(calls, deadline, calls.client.send(request, stream=True))
    try:
        answer = Reply(calls, response, sent_t, response.aiter_raw())
        if response.status_code != 200:
            said = await answer.next(calls.clock() + calls.timeout_s) or b""
            raise TurnFailedError(
                "error",
                f"{response.status_code} {response.reason_phrase} {said[:300].decode('utf-8', 'replace')}",
            )
        yield answer
    finally:
        await response.aclose()


@asynccontextmanager
async def post_json(
    calls: Calls, server: Server, path: str, document: Mapping[str, Any], accept: str
) -> AsyncIterator[Reply]:
    """Send JSON, with the server's model and its further fields."""
    named = {"model": server.model} if server.model else {}
    content = json.dumps({**named, **document, **server.body}).encode()
    async with post(calls, server, path, content, "application/json", accept) as answer:
        yield answer


async def served_model(calls: Calls, server: Server) -> str:
    """Ask for the model's name; the empty one stands for whatever the server has. Raises TurnFailedError "unreachable"."""
    request = calls.client.build_request("GET", f"{server.url}/v1/models", headers=dict(server.headers))
    sent_t = calls.clock()
    try:
        response = await _waited(calls, sent_t + calls.timeout_s, calls.client.send(request, stream=True))
        try:
            answer = await Reply(calls, response, sent_t, response.aiter_bytes()).json()
        finally:
            await response.aclose()
        name = answer["data"][0]["id"]
        return name if isinstance(name, str) and len(name) <= MAX_MODEL else ""
    except TurnFailedError as error:
        if error.outcome in ("unreachable", "timeout"):
            raise
        return ""
    except (ValueError, LookupError, TypeError):
        return ""


def multipart(fields: Mapping[str, str], name: str, wav: bytes) -> tuple[bytes, str]:
    """Return a form with a WAV file as its last field, and its content type."""
    request = httpx.Request("POST", "http://x", data=dict(fields), files={"file": (name, wav, "audio/wav")})
    return request.read(), request.headers["content-type"]


async def _waited(calls: Calls, deadline: float, what: Awaitable[T]) -> T:
    try:
        # Before Python 3.12 asyncio.wait_for loses a cancellation that comes with what is waited for.
        with anyio.fail_after(max(0.0, deadline - calls.clock())):
            return await what
    except (TimeoutError, httpx.TimeoutException) as error:
        raise TurnFailedError("timeout", f"nothing new for {calls.timeout_s:g} s") from error
    except httpx.ConnectError as error:
        raise TurnFailedError("unreachable", _line(error)) from error
    except (httpx.NetworkError, httpx.ProxyError) as error:
        raise TurnFailedError("cut", f"the connection broke: {_line(error)}") from error
    except httpx.RemoteProtocolError as error:
        # httpx says so both of an answer that ends too early and of one that is no HTTP.
        early = "peer closed" in str(error) or "disconnected" in str(error)
        raise TurnFailedError("cut" if early else "malformed", _line(error)) from error
    except (httpx.HTTPError, httpx.StreamError) as error:
        raise TurnFailedError("malformed", _line(error)) from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
