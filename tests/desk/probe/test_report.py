"""The probe's own measurement, told to a real tap."""

from __future__ import annotations

import json
from pathlib import Path

import click.testing
import pytest

from helpers.scripted_tap import read_events
from helpers.uvicorn_server import HANG, Serving, Speaker, speech, wait
from helpers.waiting import wait_until
from omniwatch import events as ev
from omniwatch.cli import main
from omniwatch.tap import Tap

both = pytest.mark.parametrize("scheme", ["http", "ws"])


def reported(address: str, *words: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(main, ["probe", address, "--report", "--json", *words])


def tapped(speaker: Speaker, path: Path) -> Tap:
    return Tap(speaker, environ={"OMNIWATCH_EVENTS": str(path)})


@both
def test_the_tap_is_told_what_was_measured(scheme: str, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    speaker = Speaker([wait(0.1), speech(80), wait(0.3), speech(80)])
    with Serving(tapped(speaker, path)) as server:
        result = reported(f"{scheme}://{server.authority}", "--turns=2")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    events = read_events(path)
    asked = [event for event in events if isinstance(event, ev.TurnStart)]
    told = [event for event in events if isinstance(event, ev.Rtt)]
    assert len({event.stream for event in events}) == 1
    measured = [turn["rtt_ms"] for turn in json.loads(result.stdout)["turns"]]
    assert [event.rtt_ms for event in told] == measured
    assert [event.turn for event in told] == [event.turn for event in asked]
    # What the listener heard is what the tap saw pass, to the sample.
    assert sum(event.dur_ms for event in events if isinstance(event, ev.Audio)) == 320.0


def test_it_is_told_while_the_server_still_speaks(tmp_path: Path) -> None:
    """A dashboard should not wait for a long answer's end."""
    path = tmp_path / "events.jsonl"
    with Serving(tapped(Speaker([speech(80), HANG]), path)) as server:
        result = reported(f"http://{server.authority}", "--turns=1", "--timeout=2")
    assert json.loads(result.stdout)["turns"][0]["outcome"] == "timeout"
    # The tap notices that the client left when uvicorn does, which may be after Serving's end.
    told = wait_until(lambda: ev.TurnEnd in (kinds := [type(event) for event in read_events(path)]) and kinds)
    assert told.index(ev.Rtt) < told.index(ev.TurnEnd)


@both
def test_without_a_tap_it_says_that_nothing_was_told(scheme: str) -> None:
    speaker = Speaker([speech(80)])
    with Serving(speaker) as server:
        result = reported(f"{scheme}://{server.authority}", "--turns=2")
    assert result.exit_code == 0
    assert (
        result.stderr == "not reported: the server gave no X-Omniwatch-Stream: is the tap installed there?\n"
    )
    assert speaker.reports == []


def test_a_refused_report_says_why(tmp_path: Path) -> None:
    """Ids of the tap lead nowhere but to the server that gave them."""

    tap = tapped(Speaker([speech(80)]), tmp_path / "events.jsonl")

    async def strange(scope, receive, send) -> None:
        async def named(message) -> None:
            if message["type"] == "http.response.start":
                message |= {"headers": [(b"x-omniwatch-stream", b"of-another-server"), *message["headers"]]}
            await send(message)

        await tap(scope, receive, named)

    with Serving(strange) as server:
        result = reported(f"http://{server.authority}", "--turns=1")
    assert result.exit_code == 0
    assert result.stderr == "not reported: POST /omniwatch/report: 404 no such stream\n"
