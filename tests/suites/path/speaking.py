"""The server's end of a real path: `python speaking.py PLAN`, PLAN a JSON object with the fields of `Speaking`."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import msgspec
import uvicorn

sys.path.insert(0, str(Path(__file__).parents[2]))

from helpers.uvicorn_server import Speaker, Step, speech, wait
from omniwatch.resume import Resume
from omniwatch.settings import Settings
from omniwatch.tap import Tap
from omniwatch.tap.asgi import App


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


def script(plan: Speaking) -> list[Step]:
    """Return one answer: chunks at their pace."""
    steps = [wait(plan.think_s)]
    for number in range(round(plan.turn_s * 1000 / plan.chunk_ms)):
        steps += [wait(plan.chunk_ms / 1000 / plan.pace)] if number else []
        steps.append(speech(plan.chunk_ms))
    return steps


def main(plan: Speaking) -> None:
    """Serve until the process is ended."""
    environ = {"OMNIWATCH_EVENTS": plan.events, "OMNIWATCH_EAR": plan.ear}
    app: App = Tap(Speaker(script(plan)), environ=environ)
    if plan.resumable:
        # All clients of a path have one address.
        limits = msgspec.structs.replace(Settings().resume, max_streams_per_address=64)
        app = Resume(app, settings=Settings(resume=limits), environ=environ)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit it, in a namespace that may choose it.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, plan.congestion.encode())
    listener.bind((plan.host, plan.port))
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_keep_alive=75)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Speaking))
