"""The network's share of the answer's delay, over real packets: the client's own measurement replaces the estimate."""

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
from helpers.uvicorn_server import Serving, Speaker, speech, wait
from omniwatch.cli import main
from omniwatch.desk.child_process import ChildProcess, free_port, get
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
    command = [
        sys.executable,
        "-m",
        "omniwatch",
        "exporter",
        "--config.file=/dev/null",
        str(tmp_path / "events.jsonl"),
    ]
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


def test_the_clients_own_measurement_replaces_the_estimate(
    link: DelayLink, server: Serving, sidecar: ChildProcess
) -> None:
    link.set(delay_ms=50.0)
    turn, results = asked(f"http://{link.there}:{server.port}", "--report")
    turn.join()
    measured = json.loads(results[0].stdout)["turns"][0]["rtt_ms"]
    assert measured > 300.0
    assert shown(sidecar) == {"client": measured}
