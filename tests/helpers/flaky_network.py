"""A network in memory that is cut at any byte of either direction, and a listener that keeps what it hears."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from omniwatch.client import Client, Config, Summary, TurnCallbacks
from omniwatch.desk.link import host, memory
from omniwatch.desk.link.fake_server import FakeServer
from omniwatch.desk.link.framed import Framed
from omniwatch.desk.link.path import Gilbert
from omniwatch.desk.link.scenario import FrameTrouble
from omniwatch.frames import add


class Listener(TurnCallbacks):
    """Keeps all that is heard, in order; a frame that was given up is None."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, bytes | None]] = []
        self.said = ""
        self.events: list[bytes] = []

    def audio(self, frame_id: int, payload: memoryview, play_at: float) -> None:
        self.heard.append((frame_id, bytes(payload)))

    def text(self, text: str) -> None:
        self.said += text

    def event(self, payload: memoryview) -> None:
        self.events.append(bytes(payload))

    def lost(self, from_id: int, count: int) -> None:
        self.heard += [(add(from_id, i), None) for i in range(count)]

    @property
    def speech(self) -> bytes:
        return b"".join(payload or b"" for _, payload in self.heard)


class CuttingNetwork:
    """Each connection lives for a random number of bytes; then it is reset or silent, and the network may be away."""

    def __init__(
        self,
        app: Any,
        rng: random.Random,
        *,
        mean_bytes: int,
        outage_s: Callable[[random.Random], float],
        trouble: FrameTrouble | None = None,
    ) -> None:
        self._app = app
        self._rng = rng
        self._mean_bytes = mean_bytes
        self._outage_s = outage_s
        self._trouble = trouble
        self._channel = Gilbert(trouble.drop, rng) if trouble else None
        self._back_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self.cuts = 0

    async def connect(self) -> tuple[memory.End, memory.End]:
        loop, rng = asyncio.get_running_loop(), self._rng
        await asyncio.sleep(rng.uniform(0.001, 0.03))
        if loop.time() < self._back_at:
            if rng.random() < 0.5:
                raise ConnectionRefusedError("no network")
            await asyncio.sleep(self._back_at - loop.time() + rng.uniform(0, 1))
        ours, near = memory.duplex()
        far, theirs = memory.duplex()
        self._spawn(host.serve(self._app, theirs, theirs))
        self._spawn(self._carry(near, far))
        return ours, ours

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _carry(self, near: memory.End, far: memory.End) -> None:
        rng = self._rng
        down = rng.randrange(2 * self._mean_bytes)
        # One cut in eight is in the request.
        up = rng.randrange(400) if rng.random() < 0.125 else 1 << 30
        framed = Framed(self._trouble, self._channel, rng) if self._trouble and self._channel else None
        ways = {
            self._spawn(self._way(near, far, up, None)),
            self._spawn(self._way(far, near, down, framed)),
        }
        done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        broken = any(isinstance(task.exception(), CutError) for task in done)
        if broken:
            for task in ways:
                task.cancel()
            self.cuts += 1
            loop = asyncio.get_running_loop()
            self._back_at = max(self._back_at, loop.time() + self._outage_s(rng))
            if rng.random() < 0.5:
                # Dead without a word; the server learns of it by its own patience.
                await asyncio.sleep(40)
            near.reset()
            far.reset()
        else:
            await asyncio.wait(ways)
            near.close()
            far.close()

    async def _way(self, source: memory.End, sink: memory.End, fuse: int, framed: Framed | None) -> None:
        try:
            while data := await source.read(self._rng.randint(1, 9000)):
                await asyncio.sleep(0.01)
                data = framed.feed(data) if framed else data
                sink.write(data[:fuse])
                fuse -= len(data)
                if fuse <= 0:
                    raise CutError
                await sink.drain()
            sink.close()
        except ConnectionError:
            sink.reset()


class CutError(Exception):
    """The connection has had its bytes."""


async def listen(
    app: Any, network: CuttingNetwork, seed: int, rng: random.Random, **options: Any
) -> tuple[Listener, Summary]:
    """Hear one turn over the network."""
    listener = Listener()
    # Every sample is compared, so it has to be PCM.
    options = {"config": Config(opus=False)} | options
    client = Client("http://server", listener, connect=network.connect, jitter=rng.random, **options)
    return listener, await client.speak({"seed": seed, "modalities": ["text", "audio"]})


def small_speaker(**options: Any) -> FakeServer:
    """Thirty short frames with text between: small enough to be cut ten thousand times."""
    return FakeServer(
        **{"speech_s": 2.4, "speed": 4.0, "first_s": 0.05, "rate_hz": 8000, "tail_samples": 100} | options
    )
