"""What the probe's listener hears: the recordings of a real server, and what a script can say exactly."""

from __future__ import annotations

import pytest

from helpers.wire import EXPECTED, wire_events
from omniwatch import events as ev
from omniwatch.desk.probe import Heard
from omniwatch.desk.probe.listening import HeardTurn, Picture

BUFFER_MS = 80.0


def heard_turns(name: str) -> list[Heard]:
    """Listen to a recording as if its server's clock were the client's."""
    listeners: list[HeardTurn] = []
    picture = Picture()
    for event in wire_events(name):
        if isinstance(event, ev.Video):
            picture = Picture(event.pts_ms, event.t, True)
            if listeners:
                listeners[-1].frame(event.t, event.pts_ms)
        elif isinstance(event, ev.TurnStart):
            listeners.append(HeardTurn(event.t, BUFFER_MS, picture))
        elif isinstance(event, ev.Audio):
            listeners[-1].audio(event.t, event.dur_ms)
    return [listener.heard() for listener in listeners]


@pytest.mark.parametrize("name", EXPECTED)
def test_a_recording_sounds_as_it_is_known_to(name: str) -> None:
    turns = heard_turns(name)
    assert len(turns) == len(EXPECTED[name])
    for heard, expected in zip(turns, EXPECTED[name], strict=True):
        worst = max(expected.last, expected.lowest, expected.highest, key=abs)
        assert heard.rtt_ms == pytest.approx(expected.first_audio, abs=0.1)
        assert heard.audio_ms == pytest.approx(expected.audio, abs=0.1)
        assert heard.underrun_ms == pytest.approx(expected.underrun, abs=0.1)
        assert heard.drift_ms == pytest.approx(worst, abs=2.0)


def test_without_a_picture_drift_is_minus_the_underrun() -> None:
    listener = HeardTurn(10.0, BUFFER_MS)
    listener.audio(10.5, 200.0)
    listener.audio(10.6, 0.0)
    listener.audio(11.0, 300.0)
    heard = listener.heard()
    assert (heard.rtt_ms, heard.audio_ms, heard.chunks) == (500.0, 500.0, 2)
    assert heard.underrun_ms == pytest.approx(220.0)
    assert heard.drift_ms == pytest.approx(-220.0)


def test_a_late_end_after_the_last_speech_is_no_drift() -> None:
    """The picture goes on while the server takes its time to say that it is done."""
    listener = HeardTurn(0.0, BUFFER_MS, Picture(0.0, 0.0, True))
    listener.audio(1.0, 400.0)
    for number in range(11, 60):
        listener.frame(number / 10, number * 100.0)
    assert listener.heard().drift_ms == pytest.approx(0.0, abs=1e-6)


def test_a_camera_that_runs_fast_is_drift() -> None:
    listener = HeardTurn(0.0, BUFFER_MS)
    for number in range(11):
        listener.frame(number / 10, number * 101.0)
    listener.audio(1.0, 10_000.0)
    for number in range(11, 100):
        listener.frame(number / 10, number * 101.0)
    # One percent of the 8.9 seconds from the last frame before the playback (1.08 s to 11.08 s) to the last of all.
    assert listener.heard().drift_ms == pytest.approx(-89.0)


def test_nothing_heard_is_nothing_measured() -> None:
    listener = HeardTurn(0.0, BUFFER_MS)
    listener.frame(0.1, 100.0)
    assert listener.heard() == Heard()
