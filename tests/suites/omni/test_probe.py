"""The user's own check of a server, `omniwatch probe`, on the real vLLM-Omni; what it reports arrives."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from helpers.waiting import wait_until
from omniwatch import events as ev
from suites.omni.server import Omni

TURNS = 2


@pytest.mark.parametrize("kind", ["chat", "video"])
def test_the_probe_hears_what_the_server_says(omni: Omni, kind: str) -> None:
    before = set(omni.streams())
    url = f"{'http' if kind == 'chat' else 'ws'}://127.0.0.1:{omni.port}"
    command = [sys.executable, "-m", "omniwatch", "probe", url, "--turns", str(TURNS), "--report", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    turns = json.loads(done.stdout)["turns"]
    assert [turn["outcome"] for turn in turns] == ["ok"] * TURNS
    (name,) = set(omni.streams()) - before

    def reports() -> list[ev.Rtt]:
        return [event for event in omni.streams()[name] if isinstance(event, ev.Rtt)]

    wait_until(lambda: len(reports()) == TURNS)
    events = omni.streams()[name]
    assert [event.rtt_ms for event in reports()] == pytest.approx(
        [turn["rtt_ms"] for turn in turns], abs=1e-3
    )
    asked = [event.turn for event in events if isinstance(event, ev.TurnStart)]
    assert [event.turn for event in reports()] == asked
    sent_ms = [
        sum(event.dur_ms for event in events if isinstance(event, ev.Audio) and event.turn == turn)
        for turn in asked
    ]
    assert [turn["audio_ms"] for turn in turns] == pytest.approx(sent_ms, abs=1e-3)
