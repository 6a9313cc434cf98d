"""A model server as the rest of the chain sees it, for being killed: its /metrics, and its tap's events in real time.

    python tests/suites/chaos/server.py ADDRESS EVENTS SCENARIO FAULT_AT_S [GONE_AT_S]

At GONE_AT_S ten clients come back to find their turns gone. What the events are written by is the tap's own writer. Other scenarios
write no event:

    untapped   it speaks, by its own count
    idle       nobody asks it anything
    unready    it answers 503 until SIGUSR1, then as the idle one
    closed     it does not listen until then
"""

from __future__ import annotations

import http.server
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from omniwatch.desk.simulation import SCENARIOS, events
from omniwatch.events import Event, Resume
from omniwatch.tap.writer import EventWriter

RETURNS = 10
WITHOUT_EVENTS = ("untapped", "idle", "unready", "closed")
PAGE = Path(__file__).resolve().parents[2] / "data" / "wire" / "vllm-omni-metrics.txt"


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as the real one did when its page was recorded; with `speaks_since`, an answer has been spoken each second since."""

    status = 200
    speaks_since: float | None = None

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(PAGE.read_bytes())
        if self.speaks_since is not None:
            spoken = int(time.monotonic() - self.speaks_since)
            self.wfile.write(b"vllm_omni:audio_duration_s_count %d\n" % spoken)

    def log_message(self, *args: object) -> None:
        pass


def speech(name: str, fault_at_s: float, gone_at_s: float | None) -> Iterator[Event]:
    scenario = SCENARIOS[name]
    if scenario.fault_at_s is not None:
        scenario = scenario.moved(fault_at_s)
    began_t = time.time()
    for event in events(scenario, seed=1, start_t=began_t):
        yield event
        if gone_at_s is not None and event.t - began_t >= gone_at_s:
            gone_at_s = None
            for number in range(RETURNS):
                yield Resume(t=event.t, stream=event.stream, last_good_id=number, result="gone")


def main(address: str, path: str, name: str, fault_at_s: str, gone_at_s: str | None = None) -> None:
    loaded = threading.Event()
    signal.signal(signal.SIGUSR1, lambda number, frame: loaded.set())
    if name == "closed":
        loaded.wait()
    host, _, port = address.partition(":")
    server = http.server.ThreadingHTTPServer((host, int(port)), Handler)
    if name in WITHOUT_EVENTS:
        if name == "untapped":
            Handler.speaks_since = time.monotonic()
        elif name == "unready":
            Handler.status = 503
            threading.Thread(target=server.serve_forever, daemon=True).start()
            loaded.wait()
            Handler.status = 200
            server.shutdown()
        server.serve_forever()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    writer = EventWriter(Path(path), max_bytes=16 * 2**20)
    clock = threading.Event()
    for event in speech(name, float(fault_at_s), None if gone_at_s is None else float(gone_at_s)):
        clock.wait(max(0.0, event.t - time.time()))
        writer.put(event)


if __name__ == "__main__":
    main(*sys.argv[1:])
