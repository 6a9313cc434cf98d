"""Chats made up from a seed, of clients that can come back: bare and behind the resume layer a client hears the same."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from helpers.asgi import Exchange
from helpers.differential import BrokenError, GoneError, assert_balanced, compare, nothing
from helpers.random_asgi import generated, mangled, some_chat
from helpers.scripted_tap import CHAT, read_events, response
from omniwatch import events as ev
from omniwatch import frames
from omniwatch.desk.link import virtual
from omniwatch.frames import Kind
from omniwatch.media import sse
from omniwatch.resume import Resume, speech
from omniwatch.resume.endpoints import disconnected
from omniwatch.resume.protocol import REALIGN, RESUME, RTX
from omniwatch.settings import Resume as Limits
from omniwatch.settings import Settings
from omniwatch.tap import Tap
from omniwatch.tap.asgi import App, Message

SSE = "text/event-stream;omniwatch=resume"
GRACE_S = 30.0
REFUSALS = {400, 404, 405, 408, 410, 413, 416, 429}
KEY = {"Authorization": "Bearer own"}


class Script(NamedTuple):
    """What a client asks and when it leaves; what the application says, how slowly, and where it fails."""

    asked: list[Message]
    said: list[tuple[float, Message]]
    accept: str
    half_sent: bool
    leaves_s: list[float]
    """For each of the client's connections, after how long it is gone; the connection after the last one stays."""
    fails: int | None


def script_of(seed: int) -> Script:
    """A chat made up from a seed."""
    rng = random.Random(seed)
    steps = some_chat(rng)
    asked = [step.message for step in steps if step.direction == "in"]
    pace = rng.choice([0.0, 0.01, 0.3, 2.0, 8.0])
    said = [(pace * rng.random(), step.message) for step in steps if step.direction == "out"]
    if rng.random() < 0.7:
        said[0] = 0.0, response(0).message
    half_sent = rng.random() < 0.1
    if half_sent:
        asked = [message | {"more_body": True} for message in asked]
    leaves_s = [rng.random() * rng.choice([0.01, 1.0, 10.0]) for _ in range(rng.choice([0, 1, 2, 5, 9]))]
    fails = rng.randrange(len(said)) if rng.random() < 0.15 else None
    return Script(asked, said, rng.choice([SSE, frames.MEDIA_TYPE]), half_sent, leaves_s, fails)


def application(script: Script) -> App:
    """The model server of a script; it stops when its client is gone."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        if scope["path"] != CHAT:
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        while (message := await receive())["type"] == "http.request" and message.get("more_body"):
            pass
        if message["type"] == "http.disconnect":
            return
        gone = asyncio.ensure_future(disconnected(receive))
        try:
            for number, (pause_s, message) in enumerate(script.said):
                if number == script.fails:
                    raise BrokenError(number)
                if pause_s and (await asyncio.wait({gone}, timeout=pause_s))[0]:
                    return
                await send(message)
        finally:
            gone.cancel()

    return app


class Client(Exchange):
    """A client whose server says, or not, when it is gone."""

    raises = False

    async def _send(self, message: dict[str, Any]) -> None:
        if self._left.is_set():
            if self.raises:
                raise GoneError
            return
        await super()._send(message)


class Told(NamedTuple):
    """What a client was told: its speech, and all else in its order."""

    speech: list[tuple[int, int, bytes]]
    """(samples a second, channels, samples)."""
    others: list[Any]

    def begins(self, whole: Told) -> bool:
        """Whether `whole` begins with this."""
        if self.others != whole.others[: len(self.others)]:
            return False
        for (rate, channels, pcm), other in zip(self.speech, whole.speech, strict=False):
            last = (rate, channels, pcm) == self.speech[-1]
            if (rate, channels) != other[:2] or (pcm != other[2][: len(pcm)] if last else pcm != other[2]):
                return False
        return len(self.speech) <= len(whole.speech)


class Ear:
    """Puts together what is told, in either form."""

    def __init__(self, *, texts: bool) -> None:
        self.told = Told([], [])
        self._texts = texts
        self._format = (24_000, 1)

    def speech(self, rate: int, channels: int, pcm: bytes) -> None:
        """Hear some samples."""
        spoken = self.told.speech
        if pcm and spoken and spoken[-1][:2] == (rate, channels):
            spoken[-1] = rate, channels, spoken[-1][2] + pcm
        elif pcm:
            spoken.append((rate, channels, pcm))

    def event(self, raw: bytes) -> None:
        """Hear one event of the model server's."""
        chat = speech.read(raw) if raw != sse.DONE else speech.Chat(raw, {})
        if chat.pcm:
            self.speech(chat.pcm.rate_hz, chat.pcm.channels, bytes(chat.pcm.samples))
            if chat.extra:
                self.told.others.append(unspoken(chat.body))
        elif self._texts and raw == sse.DONE:
            pass
        elif self._texts and chat.text is not None:
            self.told.others.append(chat.text)
        else:
            self.told.others.append(raw)

    def frame(self, frame: frames.Frame) -> None:
        """Hear one binary frame."""
        assert frames.verify(frame)
        payload = bytes(frame.payload)
        if frame.kind == Kind.FORMAT:
            said = json.loads(payload)
            self._format = said["sample_rate_hz"], said["channels"]
        elif frame.kind == Kind.SPEECH:
            self.speech(*self._format, payload)
        elif frame.kind == Kind.TEXT:
            self.told.others.append(payload.decode())
        elif frame.kind == Kind.EVENT:
            chat = speech.read(payload)
            self.told.others.append(unspoken(chat.body) if is_sound_with_more(chat.body) else payload)


def is_sound_with_more(body: dict[str, Any]) -> bool:
    """Whether an event without its sound is what is left of one that had some."""
    if (
        body.get("modality") != "audio"
        or not isinstance(choices := body.get("choices"), list)
        or len(choices) != 1
    ):
        return False
    choice = choices[0]
    delta = choice.get("delta") if isinstance(choice, dict) else None
    return isinstance(delta, dict) and delta.get("content") == "" and speech.Chat(b"", body).extra


def unspoken(body: dict[str, Any]) -> bytes:
    """What an event says beside its sound."""
    body = json.loads(msgspec.json.encode(body))
    choice = body["choices"][0]
    if isinstance(choice.get("delta"), dict):
        choice["delta"]["content"] = ""
    if isinstance(choice.get("audio_metadata"), dict):
        choice["audio_metadata"].pop("frame_count", None)
    return json.dumps(body).encode()


_ENDED = re.compile(rb"(?:id: \d+\.\d+\n)?event: end\ndata: [^\n]*\n\n")
_PLACE = re.compile(rb"id: (\d+)(?:\.(\d+))?\n")


class Listener:
    """A client's ears over all its connections, and where it stands."""

    def __init__(self, accept: str) -> None:
        self.binary = accept == frames.MEDIA_TYPE
        self.ear = Ear(texts=self.binary)
        self.place = (2**32 - 1, 0)
        self.ended: str | None = None

    def heard(self, exchange: Exchange) -> None:
        """Take what one connection brought; the last, half-sent frame or event of it is lost."""
        if self.binary:
            for frame in frames.Decoder().feed(exchange.body):
                if frame.kind == Kind.END:
                    self.ended = json.loads(bytes(frame.payload))["reason"]
                elif frame.kind != Kind.IDLE:
                    self._stand(frame.frame_id, frame.part)
                    self.ear.frame(frame)
            return
        for block in exchange.body.split(b"\n\n")[:-1]:
            if b"event: end" in block:
                self.ended = json.loads(block.rpartition(b"data: ")[2])["reason"]
            elif place := _PLACE.match(block):
                self._stand(int(place[1]), int(place[2] or 0))
                (raw,) = sse.Events(1 << 30).feed(block + b"\n\n")
                self.ear.event(raw)
                self.ended = "done" if raw == sse.DONE else self.ended

    def _stand(self, frame_id: int, part: int) -> None:
        before, of = self.place
        follows = (frame_id, part) in (((before + 1) % 2**32, 0), (before, of + 1))
        assert follows, f"after {self.place} came {frame_id, part}"
        self.place = frame_id, part


def bare_told(body: bytes, accept: str) -> Told:
    """What a client hears of the model server itself."""
    ear = Ear(texts=accept == frames.MEDIA_TYPE)
    for raw in sse.Events(1 << 30).feed(body):
        ear.event(raw)
    return ear.told


async def outcome(exchange: Exchange) -> str | None:
    """Wait for the end of an exchange; return the failure that came out of it, None without one."""
    try:
        await exchange.over()
    except (BrokenError, GoneError) as error:
        return type(error).__name__
    return None


def ask(app: Any, script: Script, headers: dict[str, str], rng: random.Random) -> Client:
    """The client's first connection."""
    client = Client(app, "POST", CHAT, headers=headers)
    client.raises = rng.random() < 0.5
    client.request = [dict(message) for message in reversed(script.asked)]
    return client


def junk(app: Any, rng: random.Random, known: list[str]) -> Client:
    """A request that no client of ours sends, or one of ours with another key than the chat's."""
    stream = rng.choice([*known, "", "x", "A" * 43, "é" * 30, "../" * 9, "f" * 4000])
    body: dict[str, Any] = {
        "stream": rng.choice([stream, None, 3, []]),
        **{name: rng.choice([0, 3, -1, 2**32, 2**70, 1.5, "1", None]) for name in ("last_good_id", "from_id", "count")},
        "shift_ms": rng.choice([0, 1e308, -5, "x"]),
    }  # fmt: skip
    data = json.dumps(body).encode()
    own = known and rng.random() < 0.3
    if own:
        body = {"stream": known[0], "last_good_id": 0, "from_id": 0, "count": 1, "shift_ms": 1.0}
        data = json.dumps(body).encode()
    else:
        data = rng.choice(
            [data, mangled(rng, data), rng.randbytes(rng.randrange(60)), b"[" * 3000, b"x" * 5000]
        )
    path = rng.choice([RESUME, RTX, REALIGN, f"{RESUME}/", f"{RTX}/x", f"{RESUME}/{stream[:90]}"])
    headers = {
        name: value
        for name, value in {
            "X-Omni-Resume": known[0] if own else stream.encode("ascii", "replace").decode(),
            "Last-Event-ID": rng.choice(["0", "-1", "9" * 30, "1.1", "\r\n", "4294967295.4294967295"]),
            "Authorization": rng.choice(["", "Bearer other", "Basic é", "x" * 5000]),
        }.items()
        if rng.random() < 0.5
    }
    method = rng.choice(["POST", "POST", "GET", "DELETE", "PUT"])
    return Client(app, method, path, headers=headers, body=data, peer=f"10.9.0.{rng.randrange(9)}")


def unchanged(app: App) -> App:
    """No middleware."""
    return app


async def resumed(
    seed: int, tap: Tap | None, found: Counter[str], within: Callable[[App], App] = unchanged
) -> None:
    """Run a script bare and behind the resume layer, with a client that comes back; hold one against the other."""
    script, rng = script_of(seed), random.Random(-seed)
    bare = ask(application(script), script, KEY, rng)
    if script.half_sent:
        bare.leave()
    failed = await outcome(bare)

    behind: App = application(script)
    if tap:
        tap.app, behind = behind, tap
    said: list[ev.Event] = []
    grace = Limits(grace_s=GRACE_S, resumes_burst=100)
    app = Resume(behind, settings=Settings(resume=grace), emit=said.append, clock=lambda: 1000.0)
    served = within(app)
    client = ask(served, script, {"Accept": script.accept, "X-Omni-Stream": f"s{seed}"} | KEY, rng)
    known: list[str] = []
    leaves_s = iter(script.leaves_s)
    listener = Listener(script.accept)
    while True:
        after_s = next(leaves_s, 0.5 if script.half_sent else None)
        done, _ = await asyncio.wait({client.task}, timeout=after_s)
        await play_junk(served, rng, known, found)
        if not done:
            client.leave()
        ended = await outcome(client)
        stream = client.headers.get("x-omni-resume")
        if stream is None:
            break
        known = [stream]
        assert ended is None
        listener.heard(client)
        found["connections"] += 1
        if listener.ended is not None or (done and client.ended):
            break
        await asyncio.sleep(rng.random() * GRACE_S * 0.9)
        client = back(served, stream, listener, rng)
    if not known:
        found["passed"] += 1
        if not client.has_left:
            assert (client.status, client.raw_headers, client.body) == (
                bare.status,
                bare.raw_headers,
                bare.body,
            )
            assert ended == failed
    else:
        found["in frames"] += 1
        whole, told = bare_told(bare.body, script.accept), listener.ear.told
        assert told.begins(whole), (told, whole)
        assert told == whole, ("cut short", told, whole)
        says_done = sse.DONE in [line[6:] for line in bare.body.split(b"\n")]
        assert listener.ended in ({"error"} if failed else {"done", "cut"}), listener.ended
        assert failed or (listener.ended == "done") == says_done or not listener.binary
    assert (
        not [event for event in said if isinstance(event, ev.Resume) and event.result == "unauthorized"]
        or known
    )
    await asyncio.sleep(GRACE_S + 6)
    assert (len(app.store), app.store.size, app.store.reserved) == (0, 0, 0)


def back(app: Any, stream: str, listener: Listener, rng: random.Random) -> Client:
    """The client comes back, in one of the ways that it may."""
    frame_id, part = listener.place
    by_id = KEY | {"X-Omni-Resume": stream, "Last-Event-ID": f"{frame_id}.{part}"}
    how = rng.randrange(3)
    if how == 0:
        return Client(app, "GET", RESUME, headers=by_id)
    if how == 1:
        accept = frames.MEDIA_TYPE if listener.binary else "text/event-stream"
        return Client(app, "POST", CHAT, headers=by_id | {"Accept": accept}, body=b"{}")
    body = {"stream": stream, "last_good_id": frame_id, "part": part, "rest": True, "outage_ms": 5}
    return Client(app, "POST", RESUME, headers=KEY, body=json.dumps(body).encode())


async def play_junk(app: Any, rng: random.Random, known: list[str], found: Counter[str]) -> None:
    """Send some junk; each is answered, and granted nothing."""
    for _ in range(rng.choice([0, 0, 1, 4])):
        request = await junk(app, rng, known).over()
        assert request.status in REFUSALS, (request.status, request.body)
        assert request.ended
        found["junk"] += 1


class Complaints(logging.Handler):
    """Counts what the middleware logs as its own failure."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep failures; that an application fails is the script's doing."""
        kind = record.exc_info and record.exc_info[0]
        if kind and not issubclass(kind, (BrokenError, GoneError)):
            self.found.append(logging.Formatter().format(record))


def play(
    seeds: range,
    directory: Path,
    found: Counter[str],
    within: Callable[[App], App] = unchanged,
    **environ: str,
) -> list[str]:
    """Play the scripts of some seeds, each through the tap, through both, and as a chat that can be resumed; return what was found.

    `within` is middleware around all; `environ` goes to the tap.
    """
    path = directory / "events.jsonl"
    complaints, failures = Complaints(), []
    logging.getLogger("omniwatch").addHandler(complaints)

    async def all_of(name: str, one: Callable[[int, Tap], Any]) -> None:
        tap = Tap(nothing, environ={"OMNIWATCH_EVENTS": str(path), **environ})
        for seed in seeds:
            try:
                await one(seed, tap)
            except Exception as error:
                failures.append(f"{name}, seed {seed}: {type(error).__name__}: {str(error)[:600]}")
            found[name] += 1
        tap.app = nothing
        await tap({"type": "lifespan"}, None, None)

    async def tapped(seed: int, tap: Tap) -> None:
        await compare(generated(seed), tap, within)

    async def both(seed: int, tap: Tap) -> None:
        await compare(
            generated(seed),
            tap,
            lambda app: within(Resume(app, settings=Settings(), emit=lambda event: None)),
        )

    async def chats(seed: int, tap: Tap) -> None:
        await resumed(seed, tap, found, within)

    try:
        for name, one in (("tap", tapped), ("tap and resume", both), ("chats resumed", chats)):
            virtual.run(all_of(name, one))
            events = read_events(path)
            try:
                assert_balanced(events)
                assert [event.n for event in events] == list(range(len(events))), "events were lost"
            except (AssertionError, KeyError) as error:
                failures.append(f"{name}, seeds {seeds}: {error!r}"[:600])
            found[f"events, {name}"] += len(events)
            path.unlink(missing_ok=True)
    finally:
        logging.getLogger("omniwatch").removeHandler(complaints)
    return failures + complaints.found
