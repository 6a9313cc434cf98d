"""The processor time of the ear's thread, at its full ten questions a second.

Real connections of loopback are spoken to every 80 ms. Foreign connections, of which nobody asks, fill the kernel's table.

python tests/bench/ear.py [SECONDS]
"""

from __future__ import annotations

import contextlib
import resource
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
BOUNDS = {(2, 0): 0.5, (2, 10_000): 0.5, (64, 0): 1.5}
"""Percent of a core, by speaking streams and foreign connections."""


def measure(streams: int, foreign: int, seconds: float) -> tuple[float, float, float]:
    """Return percent of a core, questions a second and events a second."""
    from helpers.listening import Call, Netlink

    asked = 0

    class Counting(Netlink):
        def send(self, question: bytes) -> int:
            nonlocal asked
            asked += 1
            return super().send(question)

    with contextlib.ExitStack() as stack:
        for _ in range(foreign // 2):
            stack.enter_context(_pair())
        calls = [stack.enter_context(Call(open_socket=lambda: Counting(lambda answer: answer)))]
        for _ in range(streams - 1):
            other = stack.enter_context(Call())
            other.ear = calls[0].ear
            other.line = other.stream_events.line = other.new_line()
            calls.append(other)
        for turn, call in enumerate(calls):
            call.stream_events.name = f"s{turn}"
            call.stream_events.ask(1)
        clock = time.pthread_getcpuclockid(calls[0].ear.listening.thread.ident or 0)
        time.sleep(0.5)
        asked, told = 0, len(calls[0].told)
        cpu, begun = time.clock_gettime(clock), time.monotonic()
        beat = begun
        while beat < begun + seconds:
            for call in calls:
                call.say()
            for call in calls:
                call.read()
            beat += 0.08
            time.sleep(max(0.0, beat - time.monotonic()))
        took = time.monotonic() - begun
        spent = time.clock_gettime(clock) - cpu
        events = sum(type(event).__name__ == "Arrived" for event in calls[0].told[told:])
        assert events > seconds, "the ear heard nothing"
        return spent / took * 100, asked / took, events / took


@contextlib.contextmanager
def _pair() -> Iterator[None]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        served, _ = server.accept()
    with client, served:
        yield


def main(seconds: float) -> int:
    """Print the table; 1 where a bound is exceeded."""
    sys.path.insert(0, str(TESTS))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(f"{'streams':>8} {'foreign':>8} {'% of core':>10} {'bound':>6} {'questions/s':>12} {'events/s':>9}")
    exceeded = False
    for (streams, foreign), bound in BOUNDS.items():
        percent, questions, events = measure(streams, foreign, seconds)
        exceeded |= percent > bound
        print(f"{streams:>8} {foreign:>8} {percent:>10.2f} {bound:>6} {questions:>12.1f} {events:>9.1f}")
    return int(exceeded)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0))
