"""The network's share of the answer's delay: real packets, the kernel's word for it, the client's own instead of it."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import click.testing
import pytest
from prometheus_client.parser import text_string_to_metric_families

from helpers.delay_link import DelayLink
from helpers.scripted_tap import read_events
from helpers.uvicorn_server import Serving, Speaker, speech, wait
from helpers.waiting import wait_until
from omniwatch import events as ev
from omniwatch.cli import main
from omniwatch.system.child_process import ChildProcess, free_port, get
from omniwatch.tap import Tap

ANSWER = [wait(0.2), speech(80), wait(1.0), speech(80)]
"""Long enough for a scrape while the connection is there."""


@pytest.fixture
def link() -> Iterator[DelayLink]:
    with DelayLink(delay_ms=0.0) as up:
        yield up


@pytest.fixture
def server(tmp_path: Path, link: DelayLink) -> Iterator[Serving]:
    tap = Tap(Speaker(ANSWER), environ={"OMNIWATCH_EVENTS": str(tmp_path / "events.jsonl")})
    with Serving(tap, host=link.here) as serving:
        yield serving


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[ChildProcess]:
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "omniwatch", "exporter", str(tmp_path / "events.jsonl")]
    service = ChildProcess(
        "sidecar", [*command, f"--web.listen-address={address}"], tmp_path, f"http://{address}"
    )
    try:
        service.await_ready("/-/healthy")
        yield service
    finally:
        service.stop()


def shown(sidecar: ChildProcess) -> dict[str, float]:
    """The answer's delay in ms by vantage, of the one stream there is."""
    families = text_string_to_metric_families(get(sidecar.url + "/metrics").decode())
    samples = [sample for family in families for sample in family.samples]
    found = [s for s in samples if s.name == "omni_token_rtt_ms"]
    assert len(found) <= 1
    return {s.labels["vantage"]: s.value for s in found}


def asked(url: str, *words: str) -> tuple[threading.Thread, list[click.testing.Result]]:
    """Have one turn in a thread, as the same client each time."""
    results: list[click.testing.Result] = []
    command = ["probe", url, "--turns=1", "--json", "--header=X-Omni-Stream: car", *words]
    turn = threading.Thread(target=lambda: results.append(click.testing.CliRunner().invoke(main, command)))
    turn.start()
    return turn, results


def spoken(path: Path) -> set[tuple[str, ev.Turn | None]]:
    """The turns that have speech."""
    return {(event.stream, event.turn) for event in read_events(path) if isinstance(event, ev.Audio)}


def own_ms(path: Path) -> float:
    """What the server itself took for its last answer."""
    events = read_events(path)
    turn = [event for event in events if isinstance(event, ev.TurnStart)][-1]
    first = next(
        event
        for event in events
        if isinstance(event, ev.Audio) and (event.stream, event.turn) == (turn.stream, turn.turn)
    )
    return (first.t - turn.t) * 1000.0


@pytest.mark.parametrize("scheme", ["http", "ws"])
def test_a_hundred_milliseconds_on_the_way_are_in_the_servers_estimate(
    scheme: str, tmp_path: Path, link: DelayLink, server: Serving, sidecar: ChildProcess
) -> None:
    path = tmp_path / "events.jsonl"

    def share_ms(delay_ms: float) -> float:
        """What the estimate has on top of the server's own time, of one more turn over the link."""
        link.set(delay_ms=delay_ms)
        turns = len(spoken(path))
        turn, results = asked(f"{scheme}://{link.there}:{server.port}")
        wait_until(lambda: len(spoken(path)) > turns)
        share = shown(sidecar)["server"] - own_ms(path)
        turn.join()
        assert results[0].exit_code == 0, results[0].output
        return share

    # An acknowledgement may wait for an answer to ride on, by up to 40 ms on a busy machine: not every time.
    wait_until(lambda: share_ms(50.0) - share_ms(0.0) == pytest.approx(100.0, rel=0.1), timeout=60.0)


def test_a_chat_that_is_over_keeps_its_answers_delay(
    tmp_path: Path, link: DelayLink, server: Serving, sidecar: ChildProcess
) -> None:
    link.set(delay_ms=50.0)
    path = tmp_path / "events.jsonl"
    turn, results = asked(f"http://{link.there}:{server.port}")
    wait_until(lambda: spoken(path) and shown(sidecar))
    turn.join()
    assert results[0].exit_code == 0, results[0].output
    assert shown(sidecar)["server"] - own_ms(path) > 90.0


def test_the_clients_own_measurement_replaces_the_estimate(
    link: DelayLink, server: Serving, sidecar: ChildProcess
) -> None:
    link.set(delay_ms=50.0)
    turn, results = asked(f"http://{link.there}:{server.port}", "--report")
    turn.join()
    measured = json.loads(results[0].stdout)["turns"][0]["rtt_ms"]
    assert measured > 300.0
    assert shown(sidecar) == {"client": measured}
