"""The listener's end of a real path: `python listening.py PLAN`; prints a line (JSON) a turn, what really happened."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import ssl
import sys
import time
import wave
from collections.abc import Awaitable, Callable

import anyio
import httpx
import msgspec
from websockets.asyncio.client import connect

from omniwatch.client import Client, Config, TurnCallbacks

FRAME_MS = 80.0


class Listening(msgspec.Struct):
    """How to listen, to whom, how often. `camera_ppm` is how much too fast the camera's clock runs."""

    host: str
    port: int = 8000
    kind: str = "websocket"
    """websocket, deflate, tls, sse, client (our own, with Resume) or cpp (the same in C++)."""
    turns: int = 5
    pause_s: float = 1.0
    turn_timeout_s: float = 60.0
    frames_per_s: float = 2.0
    camera_ppm: float = 0.0
    authority: str = ""
    """File with the certificate that the server's is from, for the kind `tls`."""
    clients: int = 1
    """How many listen at once, of our own clients."""
    opus: bool = True
    program: str = ""
    """The C++ client's (tests/data/listening.cpp) for the kind `cpp`."""


class Turn(msgspec.Struct):
    """A turn as its listener had it, on the machine's realtime clock."""

    asked_t: float
    arrivals: list[tuple[float, float]] = []
    """When a whole message of speech was there, and its length in ms."""
    error: str = ""
    client: int = 0
    """Which of several clients it is."""
    returns_s: list[float] = []
    """Of each return that the server answered, how long after the player ran dry its first new frame came."""


class Camera:
    """The client's own picture clock."""

    def __init__(self, ppm: float) -> None:
        self.began_t = time.time()
        self.rate = 1 + ppm / 1e6

    def pts_ms(self, t: float) -> float:
        return (t - self.began_t) * 1000 * self.rate


def length_ms(data: str) -> float:
    with wave.open(io.BytesIO(base64.b64decode(data))) as sound:
        return sound.getnframes() / sound.getframerate() * 1000


async def by_websocket(plan: Listening, tell: Callable[[Turn], None]) -> None:
    """One session: frames of the camera all the time, and a question a turn."""
    camera = Camera(plan.camera_ppm)
    compression = "deflate" if plan.kind == "deflate" else None
    trust = ssl.create_default_context(cafile=plan.authority) if plan.kind == "tls" else None
    address = f"{'wss' if trust else 'ws'}://{plan.host}:{plan.port}/v1/video/chat/stream"
    async with connect(
        address, ssl=trust, compression=compression, ping_interval=None, open_timeout=30, max_size=None
    ) as socket:
        await socket.send(json.dumps({"type": "session.config"}))

        async def film() -> None:
            number = 0
            while True:
                number += 1
                await asyncio.sleep(camera.began_t + number / plan.frames_per_s - time.time())
                pts_ms = camera.pts_ms(time.time())
                await socket.send(json.dumps({"type": "video.frame", "data": "x" * 2000, "pts_ms": pts_ms}))

        filming = asyncio.ensure_future(film())
        for _ in range(plan.turns):
            turn = Turn(time.time())
            await socket.send(json.dumps({"type": "video.query", "text": "well?"}))
            try:
                with anyio.fail_after(plan.turn_timeout_s):
                    async for message in socket:
                        said = json.loads(message)
                        if said["type"] == "response.output_audio.delta":
                            turn.arrivals.append((time.time(), length_ms(said["data"])))
                        elif said["type"] == "response.output_audio.done":
                            break
            except TimeoutError:
                turn.error = "timeout"
            tell(turn)
            await asyncio.sleep(plan.pause_s)
        filming.cancel()


async def by_sse(plan: Listening, tell: Callable[[Turn], None]) -> None:
    """A request a turn, on a connection that is kept."""
    async with httpx.AsyncClient(base_url=f"http://{plan.host}:{plan.port}", timeout=60.0) as client:
        for _ in range(plan.turns):
            turn = Turn(time.time())
            try:
                async with client.stream(
                    "POST",
                    "/v1/chat/completions",
                    json={"stream": True, "modalities": ["audio"], "user": "path"},
                ) as answer:
                    async for line in answer.aiter_lines():
                        if not line.startswith("data: {"):
                            continue
                        chunk = json.loads(line[6:])
                        if chunk.get("modality") == "audio":
                            speech = chunk["choices"][0]["delta"]["content"]
                            turn.arrivals.append((time.time(), length_ms(speech)))
            except httpx.HTTPError as error:
                turn.error = type(error).__name__
            tell(turn)
            await asyncio.sleep(plan.pause_s)


class Hearing(TurnCallbacks):
    """Notes when each frame was there."""

    def __init__(self) -> None:
        self.turn = Turn(0.0)

    def audio(self, frame_id: int, payload: memoryview, play_at: float) -> None:
        self.turn.arrivals.append((time.time(), FRAME_MS))


async def by_clients(plan: Listening, tell: Callable[[Turn], None]) -> None:
    """Our own clients, begun one after the other so that their turns do not meet."""
    one = by_cpp if plan.kind == "cpp" else by_client

    async def begin(number: int) -> None:
        def tell_of_one(turn: Turn) -> None:
            turn.client = number
            tell(turn)

        await asyncio.sleep(number * 10 / plan.clients)
        await one(plan, tell_of_one)

    await asyncio.gather(*(begin(number) for number in range(plan.clients)))


async def by_cpp(plan: Listening, tell: Callable[[Turn], None]) -> None:
    """The C++ client."""
    words = [f"http://{plan.host}:{plan.port}", f"{plan.turns}", f"{plan.pause_s:g}", f"{plan.opus:d}"]
    process = await asyncio.create_subprocess_exec(plan.program, *words, stdout=asyncio.subprocess.PIPE)
    for line in (await process.communicate())[0].splitlines():
        tell(msgspec.json.decode(line, type=Turn))


async def by_client(plan: Listening, tell: Callable[[Turn], None]) -> None:
    """Our own client: it comes back after each cut."""
    hearing = Hearing()
    config = Config(opus=plan.opus)
    client = Client(f"http://{plan.host}:{plan.port}", hearing, name="path", config=config)
    for _ in range(plan.turns):
        hearing.turn = Turn(time.time())
        summary = await client.speak({"modalities": ["audio"], "messages": []})
        hearing.turn.error = "" if summary.reason == "done" else summary.reason
        hearing.turn.returns_s = [back.late_s for back in summary.resumptions if back.result]
        tell(hearing.turn)
        await asyncio.sleep(plan.pause_s)


KINDS: dict[str, Callable[[Listening, Callable[[Turn], None]], Awaitable[None]]] = {
    "websocket": by_websocket,
    "deflate": by_websocket,
    "tls": by_websocket,
    "sse": by_sse,
    "client": by_clients,
    "cpp": by_clients,
}


def main(plan: Listening) -> None:
    """Listen to all turns."""

    def tell(turn: Turn) -> None:
        sys.stdout.write(msgspec.json.encode(turn).decode() + "\n")
        sys.stdout.flush()

    asyncio.run(KINDS[plan.kind](plan, tell))


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Listening))
