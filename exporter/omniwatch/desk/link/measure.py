"""Measure resumption over a network: turns heard, and for each return how long the listener waited.

The client, the middleware and the relay are the ones that run in production. The connections are in memory and the clock
is virtual: hours pass in seconds, and the same seed gives the same numbers.
"""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Callable
from typing import Any

import msgspec

from omniwatch import events
from omniwatch.client import Client, Config, Resumption, TurnCallbacks
from omniwatch.desk.link import host, memory, virtual
from omniwatch.desk.link.fake_server import FakeServer
from omniwatch.desk.link.path import Link
from omniwatch.desk.link.relay import Relay
from omniwatch.desk.link.scenario import Scenario
from omniwatch.frames import add
from omniwatch.resume import Resume

PICTURE_S = 1 / 30
FRAME_S = 0.08
BUFFER_S = 0.08
"""Speech that a player waits for before it plays."""
SPEECH_HZ = {"pcm16": 24_000, "opus": 1_500}
"""Samples a second of the stand-in's speech: at 1,500 a frame has the 240 bytes that Opus at 24 kbit/s takes."""
# Every sample is compared, so speech has to be PCM.
CONFIG = Config(warm_s=0, opus=False)
"""Each turn has a client of its own, so no connection is of use to the next."""
SETTLED_S = 0.5
"""How long after a return the voice should be back on the picture."""


class Return(msgspec.Struct):
    """One return of the client. `extra_ms` is how much later the next unheard frame played than uncut."""

    result: str
    outage_ms: float
    answer_ms: float
    extra_ms: float
    drift_ms: float | None = None


class Run(msgspec.Struct):
    """What was measured on one scenario with one seed."""

    scenario: str
    seed: int
    minutes: float
    turns: int = 0
    whole: int = 0
    """Turns heard sample for sample."""
    failed: dict[str, int] = {}
    """Turns that could not be taken up again, by the reason given."""
    returns: list[Return] = []
    frames: int = 0
    duplicates: int = 0
    lost: int = 0
    rtx: int = 0
    realigned_ms: float = 0.0
    first_ms: list[float] = []
    """From each question to its first speech, less the server's own time."""
    underrun_s: float = 0.0
    """How long there was nothing to play, in all turns."""
    server_extra_ms: list[float] = []
    """The server's own estimates, from its events."""


class _Listener(TurnCallbacks):
    """Hears one turn, and measures its returns."""

    def __init__(self, run: Run, made_at: Callable[[int], float], one_way_s: float, own_s: float) -> None:
        self.heard: list[tuple[int, bytes | None]] = []
        self.fresh: tuple[float, Return] | None = None
        self._loop = asyncio.get_running_loop()
        self._run = run
        self._made_at = made_at
        self._one_way_s = one_way_s
        self._own_s = own_s
        self._latest: tuple[float, int] = (0.0, 0)
        self._asked_at = self._loop.time()
        self._ready_at: float | None = None

    def audio(self, frame_id: int, payload: memoryview, play_at: float) -> None:
        self.heard.append((frame_id, bytes(payload)))
        now = self._loop.time()
        if self._ready_at is None:
            self._run.first_ms.append((now - self._asked_at - self._own_s) * 1000)
            self._ready_at = now + BUFFER_S
        self._run.underrun_s += max(0.0, now - self._ready_at)
        self._ready_at = max(now, self._ready_at) + FRAME_S
        if now != self._latest[0]:
            self._latest = (now, frame_id)

    def lost(self, from_id: int, count: int) -> None:
        self.heard += [(add(from_id, i), None) for i in range(count)]

    def realign(self, shift_ms: float) -> None:
        self._run.realigned_ms += abs(shift_ms)

    def resumed(self, resumption: Resumption) -> None:
        now, frame_id = self._latest
        late_s = resumption.late_s
        if now == self._loop.time():
            # Uncut, the frame could not have played before it was made and had come here either.
            late_s = min(late_s, now - self._made_at(frame_id) - self._one_way_s)
        found = Return(
            result=resumption.result,
            outage_ms=resumption.outage_s * 1000,
            answer_ms=resumption.answer_s * 1000,
            extra_ms=max(0.0, late_s) * 1000,
        )
        self._run.returns.append(found)
        self.fresh = (self._loop.time(), found)

    def shown(self, drift_ms: float | None) -> None:
        """The picture was shown: note the drift of the last return once it had time to settle."""
        if self.fresh and drift_ms is not None and self._loop.time() >= self.fresh[0] + SETTLED_S:
            self.fresh[1].drift_ms = drift_ms
            self.fresh = None


async def _measure(
    name: str,
    scenario: Scenario,
    seed: int,
    minutes: float,
    speaker: FakeServer,
    congestion: str,
    step: Callable[[float], None],
) -> Run:
    loop = asyncio.get_running_loop()
    run = Run(name, seed, minutes)

    def emit(event: events.Event) -> None:
        if isinstance(event, events.Resume) and event.extra_ms is not None:
            run.server_extra_ms.append(event.extra_ms)

    app = Resume(speaker, emit=emit)

    async def dial() -> memory.End:
        ours, theirs = memory.duplex()
        virtual.spawn(host.serve(app, theirs, theirs))
        return ours

    relay = Relay(Link(scenario, seed, congestion), dial)
    virtual.spawn(relay.weather())

    async def connect() -> tuple[memory.End, memory.End]:
        await relay.shake()
        ours, theirs = memory.duplex()
        virtual.spawn(relay.carry(theirs))
        return ours, ours

    luck = random.Random(seed)
    one_way_s = scenario.rtt_ms / 2000
    while loop.time() < minutes * 60:
        turn = run.turns
        made_at = functools.partial(_made_at, speaker, turn)
        listener = _Listener(run, made_at, one_way_s, speaker.first_s)
        client = Client("http://server", listener, connect=connect, config=CONFIG, jitter=luck.random)
        film = virtual.spawn(_film(client, listener))
        summary = await client.speak({"seed": turn})
        film.cancel()
        _count(run, summary, listener, speaker.speech(turn))
        speaker.made_at.pop(turn, None)
        step(min(1.0, loop.time() / (minutes * 60)))
        await asyncio.sleep(luck.uniform(0.5, 2.0))
    run.minutes = loop.time() / 60
    return run


def _made_at(speaker: FakeServer, turn: int, frame_id: int) -> float:
    return speaker.made_at[turn][frame_id]


async def _film(client: Client, listener: _Listener) -> None:
    """Show a picture thirty times a second, on a camera's clock that is right."""
    loop = asyncio.get_running_loop()
    while True:
        listener.shown(client.picture(loop.time() * 1000))
        await asyncio.sleep(PICTURE_S)


def _count(run: Run, summary: Any, listener: _Listener, truth: bytes) -> None:
    run.turns += 1
    run.frames += summary.spoken
    run.duplicates += summary.duplicates
    run.lost += summary.lost
    run.rtx += summary.rtx
    size = len(listener.heard[0][1] or b"") if listener.heard else 0
    right = all(
        payload is None or payload == truth[place * size : (place + 1) * size]
        for place, (_, payload) in enumerate(listener.heard)
    )
    if summary.reason != "done" or not right:
        reason = summary.reason if right else "other samples"
        run.failed[reason] = run.failed.get(reason, 0) + 1
    elif not summary.lost:
        run.whole += 1


def measure(
    name: str,
    scenario: Scenario,
    seed: int,
    minutes: float,
    *,
    speed: float = 2.0,
    speech_s: float = 20.0,
    congestion: str = "cubic",
    codec: str = "pcm16",
    step: Callable[[float], None] = lambda share: None,
) -> Run:
    """Hear turns of `speech_s` made `speed` times as fast as heard, for so many minutes; `step` is called with how far it is."""
    speaker = FakeServer(speech_s=speech_s, speed=speed, rate_hz=SPEECH_HZ[codec])
    return virtual.run(_measure(name, scenario, seed, minutes, speaker, congestion, step))
