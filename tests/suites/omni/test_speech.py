"""On the real vLLM-Omni, each way to be spoken to: what the events say is what the client received."""

from __future__ import annotations

import time

import pytest

from helpers.waiting import wait_until
from omniwatch import events as ev
from omniwatch.desk.child_process import ChildProcess, get
from suites.omni.installation import Say
from suites.omni.listening import RATE_HZ, Client, chat, realtime, video
from suites.omni.server import Omni
from suites.omni.turns import finished, followed, new_stream, spoken

CLIENTS = {"chat": chat, "realtime": realtime, "video": video}


@pytest.fixture(params=CLIENTS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def client_of(kind: str, name: str) -> Client:
    """A chat client has a name of its own: the stream would go on from the test before."""
    if kind == "chat":
        return lambda port: chat(port, {"X-Omni-Stream": name})
    return CLIENTS[kind]


def test_the_events_hold_each_sample_that_the_client_received(omni: Omni, kind: str) -> None:
    before = set(omni.streams())
    with client_of(kind, "samples")(omni.port) as speech:
        received = list(speech)
    events, end = finished(omni, kind, before)
    assert len(received) > 1
    assert [event.dur_ms * RATE_HZ / 1000 for event in spoken(events)] == pytest.approx(received, abs=1e-6)
    (turn,) = [event for event in events if isinstance(event, ev.TurnStart)]
    assert {event.turn for event in spoken(events)} == {turn.turn} == {end.turn}
    assert end.reason == "completed"


def test_a_client_that_leaves_mid_speech_ends_the_turn(omni: Omni, kind: str) -> None:
    before = set(omni.streams())
    with client_of(kind, "leaving")(omni.port) as speech:
        first = next(speech)
    events, end = finished(omni, kind, before)
    assert end.reason == "aborted"
    sent = spoken(events)
    assert sent[0].dur_ms * RATE_HZ / 1000 == pytest.approx(first, abs=1e-6)
    assert all(event.t <= end.t for event in sent)
    if kind != "chat":
        wait_until(lambda: isinstance(new_stream(omni, kind, before)[-1], ev.StreamEnd))


@pytest.mark.parametrize("kind", ["realtime", "video"])
def test_what_the_server_reports_nowhere_is_measured(
    omni: Omni, sidecar: ChildProcess, kind: str, say: Say
) -> None:
    before, reported = set(omni.streams()), omni.metric("vllm_omni:audio_ttfp_s_count")
    asked_t = time.monotonic()
    with CLIENTS[kind](omni.port) as speech:
        next(speech)
        heard_ms = (time.monotonic() - asked_t) * 1000
        rest = sum(speech)
        events, _ = finished(omni, kind, before)
        row = wait_until(lambda: followed(sidecar, events[0].stream))
        exposition = get(sidecar.url + "/metrics").decode()
        assert omni.metric("vllm_omni:audio_ttfp_s_count") == reported
    assert rest > 0
    (turn,) = [event for event in events if isinstance(event, ev.TurnStart)]
    first = spoken(events)[0]
    say(
        f"  {kind}: omni_token_rtt_ms {row['rtt_ms']:.0f} (the client waited {heard_ms:.0f}), "
        f"omni_codec_drift_ms {row['drift_ms']:.0f}; vLLM-Omni says nothing"
    )
    assert row["rtt_vantage"] == "server"
    assert row["rtt_ms"] >= (first.t - turn.t) * 1000
    assert f'omni_token_rtt_ms{{stream="{row["stream"]}",vantage="server"}} ' in exposition
    assert f'omni_codec_drift_ms{{stream="{row["stream"]}"}} ' in exposition
