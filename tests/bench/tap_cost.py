"""What the tap, its ear included, adds to a message, over the recordings of the real server.

The peer is to decode the JSON of the same messages with the standard library, in the same run: microseconds vary with the machine.

python tests/bench/tap_cost.py [ROUNDS]
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent
BOUND = 1.0
"""The tap may cost no more than to decode each message once."""


class Timed:
    """An application that acts out its steps and notes how long each message took, in microseconds."""

    def __init__(self, steps: list[Any]) -> None:
        self.steps = steps
        self.took: list[list[float]] = [[] for _ in steps]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        clock = time.perf_counter_ns
        for (_, direction, message), took in zip(self.steps, self.took, strict=True):
            if direction == "in":
                begun = clock()
                await receive()
                took.append((clock() - begun) / 1000)
            else:
                begun = clock()
                await send(message)
                took.append((clock() - begun) / 1000)

    def medians(self) -> list[float]:
        """The median of each message over all rounds."""
        return [statistics.median(took) for took in self.took]


def kind_of(step: Any) -> str:
    """What a message is, and about how large."""
    size = len(step.message.get("text") or step.message.get("body") or "")
    if size > 64 * 1024:
        return "speech of 75-128 KB"
    if step.direction == "out" and size > 8 * 1024:
        return "speech of 10-50 KB"
    return "from the client" if step.direction == "in" else "text, acks"


def sessions() -> Iterator[tuple[str, list[Any]]]:
    """Every recording as the path and the steps of a connection."""
    from helpers.realtime_session import recorded
    from helpers.scripted_tap import (
        CHAT,
        REALTIME,
        VIDEO,
        body,
        recorded_steps,
        request,
        response,
        sse_recording,
    )
    from helpers.wire import EXPECTED

    for name in EXPECTED:
        yield VIDEO, recorded_steps(name)
    events = [event + b"\n\n" for event in sse_recording().split(b"\n\n") if event.strip()]
    asked = request(0, {"stream": True, "modalities": ["text", "audio"], "messages": []})
    yield CHAT, [*asked, response(0), *(body(0, event) for event in events), body(0, b"", more=False)]
    yield REALTIME, recorded()


def text_of(message: Any) -> str | bytes:
    """The JSON of a message; "" where it has none."""
    text = message.get("text") or message.get("body") or b""
    if isinstance(text, bytes):
        text = text.strip().removeprefix(b"data: ")
    return text if text[:1] in ("{", b"{") else ""


def decoding(text: str | bytes, rounds: int) -> float:
    """The median of the microseconds that it takes to decode a text's JSON; 0 where it has none."""
    clock = time.perf_counter_ns
    took = []
    for _ in range(rounds if text else 0):
        begun = clock()
        json.loads(text)
        took.append((clock() - begun) / 1000)
    return statistics.median(took or [0.0])


async def measure(rounds: int, directory: Path) -> dict[str, list[tuple[float, float, float]]]:
    """Return the microseconds of every message, by kind: bare, tapped, and its decoding alone."""
    from helpers.scripted_tap import Server, scope_of
    from omniwatch.tap import Tap

    found: dict[str, list[tuple[float, float, float]]] = {}
    for path, steps in sessions():
        bare, tapped = Timed(steps), Timed(steps)
        environ = {"OMNIWATCH_EVENTS": str(directory / "events.jsonl"), "OMNIWATCH_EAR": "kernel"}
        tap = Tap(tapped, environ=environ)
        for _ in range(rounds):
            for app in (bare, tap):
                server = Server(step.message for step in steps if step.direction == "in")
                await app(scope_of(path, server=("192.0.2.1", 8000)), server.receive, server.send)
                # The tap's thread writes what was put, as it does between the messages of a live stream.
                await asyncio.sleep(0.03)
        for step, one, other in zip(steps, bare.medians(), tapped.medians(), strict=True):
            alone = decoding(text_of(step.message), rounds)
            found.setdefault(kind_of(step), []).append((one, other, alone))
    return found


def main(rounds: int) -> int:
    """Print the table; 1 where the tap costs more than decoding alone, over all messages."""
    sys.path.insert(0, str(TESTS))
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(measure(rounds, Path(directory)))
    found["all"] = [one for kind in found.values() for one in kind]
    print(
        f"{'messages':<20} {'count':>6} {'bare us':>8} {'added us':>9} {'p99':>6} {'decoding us':>12} {'ratio':>6}"
    )
    for kind, took in found.items():
        added = sorted(tapped - bare for bare, tapped, _ in took)
        bare, _, alone = (statistics.median(side) for side in zip(*took, strict=True))
        ratio = sum(added) / (sum(one for _, _, one in took) or float("nan"))
        p99 = added[int(len(added) * 0.99)]
        print(
            f"{kind:<20} {len(took):>6} {bare:>8.2f} {statistics.median(added):>9.2f} {p99:>6.1f} {alone:>12.2f} {ratio:>6.2f}"
        )
    print(f"bound: {BOUND:g} of decoding, over all messages: {'exceeded' if ratio > BOUND else 'kept'}")
    return int(ratio > BOUND)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 40))
