"""Many clients at once at the same turns, right and wrong, fast and slow: what must hold whatever the order is held.

One world is a resume layer with limits of its own, a few turns, and clients that begin, return, fetch again, report, hang
up and leave at random moments of virtual time.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sys
from collections import Counter
from typing import Any

from helpers.asgi import Exchange
from helpers.spoken import AtOnce
from omniwatch import events as ev
from omniwatch.desk.link import virtual
from omniwatch.desk.link.fake_server import FakeServer
from omniwatch.frames import MEDIA_TYPE, Decoder, Frame, Kind, verify
from omniwatch.resume import Resume
from omniwatch.resume.protocol import CHAT, REALIGN, RESUME, RTX
from omniwatch.resume.store import ResumableTurn
from omniwatch.resume.turn import ENTRY_BYTES
from omniwatch.settings import Frames, Settings
from omniwatch.settings import Resume as Limits

FRAME_BYTES = 24_000 * 80 // 1000 * 2
SLACK_BYTES = 20_000
"""What the model server says at once: a bound of memory can be seen only after it."""
CACHE_WIN = 15
ROOMY = 1 << 30
GRACE_S = 3.0
BEFORE = 2**32 - 1
"""The place of a client that heard nothing yet."""
OPUS = f"{MEDIA_TYPE};codec=opus"
OPUS_EVERY = 3
"""One world in so many has its speech in Opus."""
REFUSALS = {404, 409, 410, 416, 429}
STRANGERS = {404, 410, 429}


class Race:
    """One turn: its key, and what all its listeners were sent."""

    def __init__(self, seed: int, key: str | None, address: str) -> None:
        self.seed = seed
        self.key = key
        self.address = address
        self.stream = ""
        self.speaker: Racer | None = None
        self.silenced: set[Racer] = set()
        self.hung_up = False
        self.listened_at = 0.0
        self.packets: dict[int, bytes] | None = None
        """In Opus, what was sent first of each frame."""
        self.place = (BEFORE, 0)
        """The farthest place that was sent to any client."""

    @property
    def own(self) -> dict[str, str]:
        """The headers of a request with the right key."""
        return {"Authorization": self.key} if self.key else {}

    def said(self, frame: Frame, speech: bytes) -> bytes:
        """Return what a frame of speech must hold: in Opus the packet that was sent first."""
        if self.packets is not None:
            return self.packets.setdefault(frame.frame_id, bytes(frame.payload))
        start = frame.frame_id * FRAME_BYTES
        return speech[start : start + FRAME_BYTES]


class Racer(Exchange):
    """One connection to a turn; every frame of it is checked as it is sent."""

    race: Race | None = None
    speech_of_turn = b""
    after: tuple[int, int] | None = None
    """The place that the first frame must follow; None at the turn's begin."""
    replays = False
    """Whether the turn may be sent from its begin instead."""

    def begin(self, race: Race, speech: bytes, after: tuple[int, int] | None, *, replays: bool) -> Racer:
        """Say what it may be sent."""
        self.race, self.speech_of_turn, self.after, self.replays = race, speech, after, replays
        self._decoder = Decoder()
        self.lag_s = 0.0
        self.end: str | None = None
        return self

    async def _send(self, message: dict[str, Any]) -> None:
        if self._left.is_set():
            raise OSError("gone")
        if self.race and self.lag_s:
            await asyncio.sleep(self.lag_s)
        await super()._send(message)
        if self.race and self.status in (200, 206) and message["type"] == "http.response.body":
            for frame in self._decoder.feed(message.get("body", b"")):
                self._heard(self.race, frame)
            self.body = b""

    def _heard(self, race: Race, frame: Frame) -> None:
        assert verify(frame), "a frame that is not what it says"
        if frame.kind == Kind.IDLE:
            return
        if frame.kind == Kind.END:
            self.end = json.loads(bytes(frame.payload))["reason"]
            if frame.part == 0:
                return  # Only this connection ends.
        assert not race.hung_up, "speech after the client hung up"
        assert self not in race.silenced, "two readers of one turn"
        if race.speaker is not self:
            if race.speaker:
                race.silenced.add(race.speaker)
            race.speaker = self
        place = frame.frame_id, frame.part
        first = (BEFORE, 1), (0, 0)
        if self.replays and place in first:
            self.after = None
        expected = first if self.after is None else follows(self.after)
        self.replays = False
        assert place in expected, f"after {self.after} came {place}"
        self.after = place
        if frame.kind != Kind.END and rank(place) > rank(race.place):
            race.place = place
        if frame.kind == Kind.SPEECH:
            assert bytes(frame.payload) == race.said(frame, self.speech_of_turn), "another frame's speech"


def rank(place: tuple[int, int]) -> tuple[int, int]:
    """Order places in a turn, that before its first frame first."""
    return (place[0] + 1) % 2**32, place[1]


def follows(place: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """The places that may come after a place."""
    return ((place[0] + 1) % 2**32, 0), (place[0], place[1] + 1)


class World:
    """A resume layer and who is at it."""

    def __init__(self, seed: int, counts: Counter[str]) -> None:
        self.rng = rng = random.Random(seed)
        self.counts = counts
        self.opus = seed % OPUS_EVERY == 0
        self.roomy = rng.random() < 0.5
        self.speaker = FakeServer(
            speech_s=rng.choice([0.5, 2.0, 6.0]),
            speed=rng.choice([0.8, 2.0, 20.0]),
            chunk_frames=rng.choice([(1,), (4,), (1, 2, 4)]),
            fail_after=rng.choice([None, None, None, 3]),
        )
        self.limits = Limits(
            grace_s=GRACE_S,
            turn_bytes=ROOMY if self.roomy else rng.choice([65_536, 200_000]),
            total_bytes=ROOMY if self.roomy else rng.choice([65_536, 150_000]),
            max_streams=64 if self.roomy else rng.choice([2, 64]),
            max_streams_per_address=16 if self.roomy else rng.choice([1, 16]),
            resumes_per_s=rng.choice([2, 100]),
            resumes_burst=rng.choice([2, 100]),
            rtx_burst=rng.choice([2, 100]),
            misses_burst=rng.choice([2, 1000]),
        )
        self.said: list[ev.Event] = []
        self.app = Resume(
            self.speaker,
            settings=Settings(resume=self.limits, frames=Frames(cache_win=CACHE_WIN)),
            emit=self.said.append,
            clock=lambda: 1000.0,
            thread=AtOnce,
        )
        self.races: list[Race] = []
        self.exchanges: list[Exchange] = []

    async def begin(self, number: int) -> None:
        """A client begins a turn, and leaves when it likes."""
        rng = self.rng
        race = Race(number, rng.choice([None, "Bearer own", "Basic own"]), f"10.0.0.{rng.randrange(3)}")
        asked = json.dumps({"stream": True, "seed": number}).encode()
        race.packets = {} if self.opus else None
        headers = race.own | {"Accept": OPUS if self.opus else MEDIA_TYPE}
        call = Racer(self.app, "POST", CHAT, headers=headers, body=asked, peer=race.address)
        call.begin(race, self.speaker.speech(number), None, replays=False)
        call.lag_s = rng.choice([0.0, 0.0, 0.3])
        self.exchanges.append(call)
        await call.until(lambda exchange: bool(exchange.status), 60)
        self.counts["turns"] += 1
        if call.status == 503:
            self.counts["turns refused"] += 1
            return
        assert call.status == 200
        race.stream = call.headers["x-omni-resume"]
        race.listened_at = asyncio.get_running_loop().time()
        self.races.append(race)
        await self._stay(call)

    async def _stay(self, racer: Exchange) -> None:
        """Listen for a while; leave, or stay to the end, or stop reading."""
        rng = self.rng
        await asyncio.wait({racer.task}, timeout=rng.choice([0.0, 0.1, 1.0, 5.0]) * rng.random())
        how = rng.randrange(4)
        if how == 0:
            racer.gate.clear()
            await asyncio.sleep(rng.random() * 3)
            racer.gate.set()
        if how < 3:
            racer.leave()

    async def act(self) -> None:
        """One client does one thing."""
        rng = self.rng
        await asyncio.sleep(rng.choice([0.0, 0.0, 1e-4, 3.0, 9.0]) * rng.random())
        if not self.races:
            return
        race = rng.choice(self.races)
        key = rng.choice([race.own, race.own, race.own, {}, {"Authorization": "Bearer other"}])
        stranger = race.key is not None and key != race.own
        does = rng.choice([self.resume, self.resume, self.resume, self.fetch, self.realign, self.hang_up])
        if does == self.hang_up and rng.random() < 0.7:
            does = self.resume
        await does(race, key, stranger=stranger)

    async def resume(self, race: Race, key: dict[str, str], *, stranger: bool) -> None:
        """Come back, from where nobody stands as often as not."""
        rng = self.rng
        before = BEFORE if race.place[0] == BEFORE else max(0, race.place[0] - 3)
        frame_id, part = rng.choice(
            [race.place, race.place, (BEFORE, 0), (before, 0), (rng.randrange(200), 0)]
        )
        rest, attempt = rng.random() < 0.5, rng.choice([None, None, rng.randrange(5)])
        by_id = key | {"X-Omni-Resume": race.stream, "Last-Event-ID": f"{frame_id}.{part}"}
        body = {
            "stream": race.stream,
            "last_good_id": frame_id,
            "part": part,
            "rest": rest,
            "attempt": attempt,
        }
        method, path, headers = rng.choice(
            [("POST", RESUME, key), ("GET", RESUME, by_id), ("POST", CHAT, by_id | {"Accept": MEDIA_TYPE})]
        )
        replays = (path == RESUME and method == "POST" and not rest) or method == "GET" or path == CHAT
        racer = self._ask(Racer, method, path, headers, body if headers is key else None)
        racer.begin(race, self.speaker.speech(race.seed), (frame_id, part), replays=replays)
        racer.lag_s = rng.choice([0.0, 0.0, 0.0, 0.2])
        was_hung_up = race.hung_up
        await racer.until(lambda exchange: bool(exchange.status) or exchange.task.done(), 60)
        self.counts[f"resume {racer.status}"] += 1
        assert racer.status in (STRANGERS if stranger else REFUSALS | {200, 206}), racer.status
        assert not (was_hung_up and racer.status in (200, 206)), "resumed after it was hung up"
        await self._stay(racer)

    async def fetch(self, race: Race, key: dict[str, str], *, stranger: bool) -> None:
        """Fetch frames again."""
        rng = self.rng
        from_id, count = rng.randrange(60), rng.randint(1, CACHE_WIN)
        body = {"stream": race.stream, "from_id": from_id, "count": count}
        asked = await self._ask(Exchange, "POST", RTX, key, body).over()
        self.counts[f"rtx {asked.status}"] += 1
        assert asked.status in (STRANGERS if stranger else REFUSALS | {206}), asked.status
        if asked.status == 206:
            ids = [frame.frame_id for frame in asked.frames if frame.kind == Kind.SPEECH]
            assert ids == [frame_id for frame_id in range(from_id, from_id + count) if frame_id in ids], ids
            speech = self.speaker.speech(race.seed)
            for frame in asked.frames:
                assert frame.kind != Kind.SPEECH or bytes(frame.payload) == race.said(frame, speech)

    async def realign(self, race: Race, key: dict[str, str], *, stranger: bool) -> None:
        """Report a realignment."""
        asked = await self._ask(
            Exchange, "POST", REALIGN, key, {"stream": race.stream, "shift_ms": 20.0}
        ).over()
        self.counts[f"realign {asked.status}"] += 1
        assert asked.status in (STRANGERS if stranger else REFUSALS | {204}), asked.status

    async def hang_up(self, race: Race, key: dict[str, str], *, stranger: bool) -> None:
        """Hang up."""
        asked = self._ask(Exchange, "DELETE", RESUME, key | {"X-Omni-Resume": race.stream}, None)
        await asked.over()
        self.counts[f"hang-up {asked.status}"] += 1
        assert asked.status in (STRANGERS if stranger else REFUSALS | {204}), asked.status
        if asked.status == 204:
            race.hung_up = True
            assert self.app.store.get(race.stream) is None

    def _ask(self, kind: type[Any], method: str, path: str, headers: dict[str, str], body: Any) -> Any:

        data = json.dumps(body).encode() if body else b""
        peer = f"10.0.0.{self.rng.randrange(3)}"
        asked = kind(self.app, method, path, headers=headers, body=data, peer=peer)
        self.exchanges.append(asked)
        return asked

    async def watch(self) -> None:
        """Hold the bounds of memory, again and again."""
        while True:
            self.hold_bounds()
            if self.roomy:
                self.hold_grace()
            await asyncio.sleep(0.03)

    def hold_bounds(self) -> None:
        """What is held is what is counted, and no more than the settings say."""
        store, limits = self.app.store, self.limits
        turns: list[ResumableTurn] = list(store)
        assert store.size == sum(one.turn.size for one in turns), "bytes are counted wrong"
        for one in turns:
            turn, oldest = one.turn, one.turn.oldest
            held, _ = turn.batch(oldest, sys.maxsize)
            assert turn.size == len(held) + ENTRY_BYTES * (turn.end - oldest), "a turn's bytes, wrong"
            unsent, _ = turn.batch(max(oldest, turn.sent), sys.maxsize)
            assert turn.unsent == len(unsent), "unsent bytes are counted wrong"
            assert one.turn.size <= limits.turn_bytes + SLACK_BYTES, f"a turn of {one.turn.size}"
        assert store.size <= limits.total_bytes + SLACK_BYTES * len(turns), f"{store.size} in all"
        assert len(turns) + store.reserved <= limits.max_streams

    def hold_grace(self) -> None:
        """Where there is room, no turn is let go of before its clients had been away for the grace."""
        now = asyncio.get_running_loop().time()
        for race in self.races:
            held = self.app.store.get(race.stream)
            if held and held.listener:
                race.listened_at = now
            away_s = now - race.listened_at
            assert held or race.hung_up or away_s > GRACE_S - 0.1, f"let go of after {away_s} s"

    async def last_client(self, race: Race) -> None:
        """Whatever went before, a client that comes back last hears the rest to its end."""
        await asyncio.sleep(1.5)
        held = self.app.store.get(race.stream)
        body = {"stream": race.stream, "last_good_id": race.place[0], "part": race.place[1], "rest": True}
        racer = self._ask(Racer, "POST", RESUME, race.own, body | {"attempt": 1000})
        racer.begin(race, self.speaker.speech(race.seed), race.place, replays=False)
        await racer.over()
        self.counts[f"last {racer.status}"] += 1
        if held is None:
            assert racer.status in (410, 429), racer.status
        elif racer.status in (200, 206):
            frames = -(-len(self.speaker.speech(race.seed)) // FRAME_BYTES)
            whole = race.place[0] == frames - 1
            assert (racer.end == "done" and whole) or (racer.end == "error" and self.speaker.fail_after), (
                racer.end,
                race.place,
                frames,
            )
        else:
            assert racer.status in ({429} if self.roomy else {410, 429}), racer.status

    async def run(self) -> None:
        """Live through it."""
        loop, failures = asyncio.get_running_loop(), []
        loop.set_exception_handler(lambda _, context: failures.append(context))
        watching = asyncio.ensure_future(self.watch())
        watching.add_done_callback(lambda task: task.cancelled() or failures.append(task.exception()))
        turns = [self.begin(number) for number in range(self.rng.choice([1, 1, 3]))]
        clients = [self.act() for _ in range(self.rng.choice([4, 12, 40]))]
        await asyncio.gather(*turns, *clients)
        self.counts["clients"] += len(clients)
        for race in self.races:
            await self.last_client(race)
        for exchange in self.exchanges:
            exchange.gate.set()
            exchange.leave()
        for exchange in self.exchanges:
            try:
                await asyncio.wait_for(exchange.task, 60)
            except OSError:
                self.counts["left while answered"] += 1
        await asyncio.sleep(GRACE_S + 7)
        watching.cancel()
        self.hold_bounds()
        store = self.app.store
        assert (len(store), store.size, store.reserved) == (0, 0, 0), "something is held for ever"
        left = asyncio.all_tasks() - {asyncio.current_task(), watching}
        assert not left, f"tasks left: {left}"
        gc.collect()
        assert not failures, failures


def play(seed: int, counts: Counter[str]) -> str | None:
    """Live through one world; return what did not hold."""
    try:
        virtual.run(World(seed, counts).run())
    except Exception as error:
        return f"seed {seed}: {type(error).__name__}: {str(error)[:600]}"
    counts["worlds"] += 1
    return None
