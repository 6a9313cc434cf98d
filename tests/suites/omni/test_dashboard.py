"""The model server's dashboard, asked of a real Prometheus that scrapes the real vLLM-Omni."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

from helpers.scraped import WINDOW, asked
from helpers.waiting import wait_until
from omniwatch.bundle import dashboard_json, render
from omniwatch.desk.demo.local_stack import Stack
from omniwatch.settings import Settings
from suites.omni.listening import chat
from suites.omni.server import Omni

DASHBOARD = json.loads(render.render(Settings())[PurePosixPath("dashboards/model-server.json")])
UNHEARD = "no sidecar reads what this server's tap writes"
EMPTY = {
    "panel 5 A": "a reason of failure has a series from its first request on",
    "panel 6 A": "so has a reason for no audio",
    "panel 19 A": UNHEARD,
    "panel 24 A": UNHEARD,
    "panel 25 A": UNHEARD,
    "panel 27 A": UNHEARD,
}
"""Queries that must be empty in this run, and why."""

ENDED = (
    "vllm_omni:requests_success_total",
    "vllm_omni:audio_duration_s_count",
    "vllm_omni:audio_underrun_s_count",
)
"""What vLLM-Omni counts when a turn ends."""


def speak(omni: Omni, stream: str) -> None:
    with chat(omni.port, {"X-Omni-Stream": stream}) as speech:
        assert sum(speech)


@pytest.fixture(scope="module")
def stack(omni: Omni, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    directory = tmp_path_factory.mktemp("dashboard") / "stack"
    with Stack(directory, say=lambda line: None, model_server=f"127.0.0.1:{omni.port}") as stack:
        wait_until(lambda: stack.query('up{job="model_server"} == 1'), 30, "the server is scraped")
        speak(omni, "first")
        # A counter's increase is seen only from its second sample on: the first turn must be scraped before the others.
        wait_until(
            lambda: all(stack.query(counter) for counter in ENDED), 30, "the end of the first turn is scraped"
        )
        for number in range(3):
            speak(omni, f"dashboard-{number}")
        grown = [f"increase({counter}[{WINDOW['__rate_interval']}]) > 0" for counter in ENDED]
        wait_until(lambda: all(stack.query(growth) for growth in grown), 30, "the others are scraped")
        yield stack


def test_every_query_returns_data(stack: Stack) -> None:
    empty = {
        f"panel {panel['id']} {target['refId']}": target["expr"]
        for panel in dashboard_json.panels(DASHBOARD)
        for target in panel["targets"]
        if not asked(stack, target)
    }
    assert empty.keys() == EMPTY.keys(), {
        place: empty.get(place, "has data") for place in empty.keys() ^ EMPTY.keys()
    }
