"""Both clients over real sockets: what they report is written as events, and the next question goes by the connection kept."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from helpers.clients import compile_cpp
from helpers.paths import DATA
from helpers.scripted_tap import CHAT, read_events
from helpers.uvicorn_server import Serving, Speaker, speech, wait
from omniwatch import events as ev
from omniwatch.client import Client, TurnCallbacks
from omniwatch.core.streams import StreamTable
from omniwatch.resume import Resume
from omniwatch.settings import Settings
from omniwatch.tap import Tap

SPOKEN = [wait(0.2), speech(320), speech(320), wait(1.4), speech(320)]
"""960 ms, before whose last third the listener has nothing to play for 1.4 s less 560 ms."""
UNDERRUN_MS = 1400 - 720
PAUSE_S = 2.0

Turns = Callable[[str], list[float]]


class Seen(NamedTuple):
    """A request that the server was asked, and by which of the client's ports."""

    path: str
    port: int


def by_python(url: str) -> list[float]:
    """Have two turns; return how long the first speech of each took, in ms."""
    took: list[float] = []

    class Ear(TurnCallbacks):
        began: float | None = None

        def audio(self, frame_id: int, payload: memoryview, play_at: float) -> None:
            if self.began is not None:
                took.append((asyncio.get_running_loop().time() - self.began) * 1000)
                self.began = None

    async def main() -> None:
        ear = Ear()
        client = Client(url, ear)
        for number in range(2):
            await asyncio.sleep(PAUSE_S * number)
            ear.began = asyncio.get_running_loop().time()
            summary = await client.speak({"modalities": ["audio"], "messages": []})
            assert summary.reason == "done"
        # The last report comes once all was played.
        await asyncio.sleep(PAUSE_S)
        await client.close()

    asyncio.run(main())
    return took


def by_cpp(url: str, folder: Path) -> list[float]:
    program = compile_cpp("warm", folder, DATA)
    command = [str(program), url, f"{PAUSE_S}", "120"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == ["done"] * 2
    return [float(line[1]) for line in lines]


@pytest.mark.parametrize("language", ["python", "cpp"])
def test_what_a_client_reports_is_written_and_its_next_question_goes_by_that_connection(
    tmp_path: Path, language: str
) -> None:
    file = tmp_path / "events.jsonl"
    seen: list[Seen] = []
    app = Resume(Tap(Speaker(SPOKEN), environ={"OMNIWATCH_EVENTS": str(file)}), environ={})

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            seen.append(Seen(scope["path"], scope["client"][1]))
        await app(scope, receive, send)

    with Serving(noting, timeout_keep_alive=75) as server:
        url = f"http://127.0.0.1:{server.port}"
        took = by_python(url) if language == "python" else by_cpp(url, tmp_path)
    first, second = [one.port for one in seen if one.path == CHAT]
    kept = {one.port for one in seen[: seen.index(Seen(CHAT, second))] if one.path == "/omniwatch/report"}
    assert kept == {second} != {first}
    written = read_events(file)
    turn = next(event.turn for event in written if isinstance(event, ev.TurnStart))
    (rtt,) = [event for event in written if isinstance(event, ev.Rtt) and event.turn == turn]
    assert took[0] - 150 <= rtt.rtt_ms <= took[0]
    played = [event for event in written if isinstance(event, ev.Played) and event.turn == turn]
    assert [event.source for event in played] == ["player"] * len(played)
    assert played[-1].played_ms == pytest.approx(960)
    underruns = [event.ms for event in written if isinstance(event, ev.Underrun) and event.turn == turn]
    assert sum(underruns) == pytest.approx(UNDERRUN_MS, abs=100)
    # The sidecar's code makes the same of it: the model's underrun and the client's are not both counted.
    table = StreamTable(Settings())
    for event in written[: written.index(played[-1]) + 1]:
        table.apply(event)
    assert table.totals.audio_underrun_seconds == pytest.approx(UNDERRUN_MS / 1000, abs=0.15)
