"""What the sidecar keeps: only what changed, and never at the price of its answers."""

from __future__ import annotations

import logging

import pytest

from helpers.events import T0, audio
from helpers.sidecars import value, write
from omniwatch.settings import Settings
from omniwatch.sidecar.loop import Sidecar
from omniwatch.sources.spec import open_source


@pytest.fixture
def start(tmp_path, times):
    """Start a sidecar on tmp_path/events.jsonl, as a restart would find it."""

    def started() -> Sidecar:
        return Sidecar(
            Settings(),
            [open_source(str(tmp_path / "events.jsonl"))],
            state_file=tmp_path / "checkpoint",
            clock=lambda: times.wall,
            monotonic=lambda: times.steady,
        )

    return started


def test_a_number_that_no_checkpoint_holds_is_no_event(tmp_path, start):
    path = tmp_path / "events.jsonl"
    write(path, audio(0))
    first = start()
    first.step()
    with path.open("ab") as lines:
        lines.write(b'{"ev":"turn","t":%d,"stream":"a","turn":18446744073709551616}\n' % T0)
    write(path, audio(0.1), writer="w2")
    for sidecar in (first, start()):
        assert value(sidecar, "omni_audio_frames_total") == 2
        assert value(sidecar, "omniwatch_checkpoint_errors_total") == 0
        assert value(sidecar, "omniwatch_events_invalid_total", source=f"tail:{path}", reason="fields") == 1


def test_a_state_that_cannot_be_encoded_is_counted_and_reading_goes_on(tmp_path, start, caplog):
    write(tmp_path / "events.jsonl", audio(0))
    sidecar = start()
    sidecar.table.totals.streams_dropped = 2**64
    with caplog.at_level(logging.ERROR, "omniwatch"):
        assert value(sidecar, "omni_audio_frames_total") == 1
    assert "checkpoint not written" in caplog.text
    assert value(sidecar, "omniwatch_checkpoint_errors_total") >= 1


def test_what_has_not_changed_is_not_written_again(tmp_path, start, times):
    kept = tmp_path / "checkpoint"
    write(tmp_path / "events.jsonl", audio(0))
    sidecar = start()

    def written() -> tuple[int, int]:
        times.wall += 1.000001
        times.steady += 1
        list(sidecar.collect())
        return kept.stat().st_ino, kept.stat().st_mtime_ns

    written()
    times.wall, times.steady = times.wall + 70, times.steady + 70
    idle = written()
    assert [written() for _ in range(20)] == [idle] * 20
    write(tmp_path / "events.jsonl", audio(90), writer="w2")
    assert written() != idle
    kept.unlink()
    written()
    assert value(start(), "omni_audio_frames_total") == 2
