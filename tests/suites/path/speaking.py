"""The server's end of a real path: `python speaking.py PLAN`, PLAN a JSON object with the fields of `Speaking`."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import struct
import sys
from pathlib import Path

import msgspec
import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

sys.path.insert(0, str(Path(__file__).parents[2]))

from helpers.spoken import spoken
from helpers.uvicorn_server import Speaker, Step, raw, speech, wait
from omniwatch.media import wav
from omniwatch.resume import Resume
from omniwatch.settings import Settings
from omniwatch.tap import Tap
from omniwatch.tap.asgi import App

BYTES_SENT = 200
"""Where `struct tcp_info` has tcpi_bytes_sent, and after it tcpi_bytes_retrans."""


class Speaking(msgspec.Struct):
    """What it says, how, and over what."""

    host: str
    events: str
    port: int = 8000
    resumable: bool = False
    congestion: str = "cubic"
    ear: str = "kernel"
    think_s: float = 0.3
    turn_s: float = 10.0
    chunk_ms: float = 320.0
    pace: float = 1.05
    """Speech handed over for each second of time, after a first chunk that comes at once."""
    voiced: bool = False
    """By chat alone: a voice, of which Opus makes as much as of speech; else silence."""
    certificate: str = ""
    """File with a key and its certificate, to serve over TLS."""
    connections: str = ""
    """File to which each connection's bytes are added when it ends, by the kernel's count."""


class Carried(msgspec.Struct):
    """What a connection's server sent, by the kernel's count (TCP_INFO): what was lost and sent again counts each time."""

    sent_bytes: int
    repeated_bytes: int
    congestion: str


def carried(connection: socket.socket) -> Carried:
    """Ask the kernel about a connection."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    congestion = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return Carried(*struct.unpack_from("=QQ", info, BYTES_SENT), congestion.rstrip(b"\0").decode())


def counting(file: str) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol, which writes down each connection's bytes as it ends."""

    class Counting(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # uvicorn chooses one of two
        def connection_lost(self, exc: Exception | None) -> None:
            with Path(file).open("ab") as lines:
                lines.write(msgspec.json.encode(carried(self.transport.get_extra_info("socket"))) + b"\n")
            super().connection_lost(exc)

    return Counting


def script(plan: Speaking) -> list[Step]:
    """Return one answer: chunks at their pace."""
    steps = [wait(plan.think_s)]
    voice = spoken(plan.turn_s) if plan.voiced else b""
    size = round(plan.chunk_ms * 24) * 2
    for number in range(round(plan.turn_s * 1000 / plan.chunk_ms)):
        steps += [wait(plan.chunk_ms / 1000 / plan.pace)] if number else []
        pcm = voice[number * size : (number + 1) * size]
        steps.append(raw(_event(pcm)) if plan.voiced else speech(plan.chunk_ms))
    return steps


def _event(pcm: bytes) -> str:
    content = base64.b64encode(wav.header(24_000, 1, len(pcm)) + pcm).decode()
    return json.dumps({"choices": [{"delta": {"content": content}}], "modality": "audio"})


def main(plan: Speaking) -> None:
    """Serve until the process is ended."""
    environ = {"OMNIWATCH_EVENTS": plan.events, "OMNIWATCH_EAR": plan.ear}
    app: App = Tap(Speaker(script(plan)), environ=environ)
    if plan.resumable:
        # All clients of a path have one address.
        limits = msgspec.structs.replace(Settings().resume, max_streams_per_address=64)
        app = Resume(app, settings=Settings(resume=limits), environ=environ)
    # With the protocol named asyncio switches Nagle's algorithm off, as vLLM's uvloop does for every connection.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit it, in a namespace that may choose it.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, plan.congestion.encode())
    listener.bind((plan.host, plan.port))
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        timeout_keep_alive=75,
        # Connections that a path cut silently never close.
        timeout_graceful_shutdown=3,
        loop="asyncio",
        ssl_certfile=plan.certificate or None,
    )
    if plan.connections:
        config.http = counting(plan.connections)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Speaking))
