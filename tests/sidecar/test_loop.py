"""The sidecar without its threads: restarts, readiness, reloads, a stuck reader, trouble with the checkpoint."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec
import pytest

from helpers.events import T0, asked, audio
from helpers.odd_files import KINDS
from helpers.sidecars import value, write
from omniwatch.settings import Alerts, Settings, SettingsError
from omniwatch.sidecar import checkpoint
from omniwatch.sidecar.loop import ALIVE_S, Saving, Sidecar, in_directory
from omniwatch.sources import Source
from omniwatch.sources.spec import open_source
from omniwatch.tap.spool import Spool


@pytest.fixture
def start(tmp_path, times):
    """Start a sidecar on tmp_path/events.jsonl, as a restart would find it."""

    def started(**options: object) -> Sidecar:
        options.setdefault("state_file", tmp_path / "checkpoint")
        options.setdefault("settings", Settings())
        options.setdefault("sources", [open_source(str(tmp_path / "events.jsonl"))])
        return Sidecar(clock=lambda: times.wall, monotonic=lambda: times.steady, **options)

    return started


def test_a_scrape_reads_what_was_written_until_then(tmp_path, start):
    sidecar = start()
    write(tmp_path / "events.jsonl", asked(0), audio(0.5, turn=1))
    assert value(sidecar, "omni_audio_frames_total") == 1
    assert value(sidecar, "omni_token_rtt_ms", stream="0", vantage="server") == pytest.approx(500)


def test_what_a_scrape_has_shown_is_counted_once_whenever_the_process_dies(tmp_path, start):
    path = tmp_path / "events.jsonl"
    spool = Spool(path, max_bytes=4000, keep=9, writer="w1")
    shown = 0.0
    for run in range(8):
        for i in range(11):
            spool.write(audio(run + i / 100, frame_id=run * 11 + i))
        sidecar = start()
        now = value(sidecar, "omni_audio_frames_total")
        assert now >= shown
        shown = now
        spool.write(audio(run + 0.2))
        if run % 2:
            sidecar.step()  # read, but neither shown nor kept when it dies
    assert value(start(), "omni_audio_frames_total") == 8 * 12
    assert value(start(), "omni_audio_frames_lost_total") == 0


def test_streams_go_on_over_a_restart(tmp_path, start):
    write(tmp_path / "events.jsonl", audio(0, pts_ms=0.0, video_pts_ms=70.0))
    assert value(start(), "omni_codec_drift_ms", stream="0") == -70
    assert value(start(), "omni_codec_drift_ms", stream="0") == -70


@pytest.mark.parametrize(
    "damage", [lambda raw: raw[:-3], lambda raw: b"\0" * len(raw), lambda raw: raw + b"x", lambda raw: b""]
)
def test_a_damaged_checkpoint_is_reported_and_started_over(tmp_path, start, damage, caplog):
    write(tmp_path / "events.jsonl", audio(0), audio(0.1))
    start().step()
    assert value(start(), "omni_audio_frames_total") == 2
    kept = tmp_path / "checkpoint"
    kept.write_bytes(damage(kept.read_bytes()))
    with caplog.at_level(logging.ERROR, "omniwatch"):
        sidecar = start()
    assert "starting over" in caplog.text
    assert value(sidecar, "omniwatch_checkpoint_errors_total") == 1
    assert value(sidecar, "omni_audio_frames_total") == 2


@pytest.mark.parametrize("kind", [*KINDS, "of another account"])
def test_a_checkpoint_that_is_none_of_its_own_is_said_and_left_and_the_sidecar_runs(
    tmp_path, start, kind, caplog
):
    kept = tmp_path / "checkpoint"
    if kind == "of another account":
        if os.geteuid() != 0:
            pytest.skip("only root may give a file away")
        kept.write_bytes(b"theirs")
        os.chown(kept, 12345, 12345)
    else:
        KINDS[kind](kept)
    before = kept.lstat()
    write(tmp_path / "events.jsonl", audio(0), audio(0.1))
    with caplog.at_level(logging.ERROR, "omniwatch"):
        sidecar = start()
    assert [record.getMessage() for record in caplog.records] == ["checkpoint cannot be used, starting over"]
    assert value(sidecar, "omni_audio_frames_total") == 2
    assert value(sidecar, "omniwatch_checkpoint_errors_total") > 1
    after = kept.lstat()
    assert (after.st_ino, after.st_mode, after.st_uid, after.st_mtime_ns) == (
        before.st_ino,
        before.st_mode,
        before.st_uid,
        before.st_mtime_ns,
    )


def test_a_checkpoint_of_which_one_position_is_none_is_started_over_whole(tmp_path, start):
    for name in ("events.jsonl", "more.jsonl"):
        write(tmp_path / name, audio(0), writer=name)
    specs = [str(tmp_path / name) for name in ("events.jsonl", "more.jsonl")]
    first = start(sources=[open_source(spec) for spec in specs])
    assert value(first, "omni_audio_frames_total") == 2
    raw = checkpoint.load(tmp_path / "checkpoint")
    saving = msgspec.msgpack.decode(raw, type=Saving)
    saving.intakes[f"tail:{specs[1]}"].position["offset"] = -5
    checkpoint.save(tmp_path / "checkpoint", msgspec.msgpack.encode(saving))
    again = start(sources=[open_source(spec) for spec in specs])
    assert value(again, "omniwatch_checkpoint_errors_total") == 1
    assert value(again, "omni_audio_frames_total") == 2


def test_a_checkpoint_that_cannot_be_written_is_counted(tmp_path, start):
    sidecar = start(state_file=tmp_path / "gone" / "checkpoint")
    value(sidecar, "omni_streams")
    assert value(sidecar, "omniwatch_checkpoint_errors_total") == 2


def test_progress_is_kept_without_scrapes(tmp_path, start, times):
    sidecar = start()
    write(tmp_path / "events.jsonl", audio(0))
    sidecar.step()
    write(tmp_path / "events.jsonl", audio(0.1), writer="w2")
    times.steady = 60.0
    sidecar.step()
    (tmp_path / "events.jsonl").unlink()
    assert value(start(), "omni_audio_frames_total") == 2


def test_a_state_directory_is_made_or_refused(tmp_path):
    assert in_directory(tmp_path / "a" / "b").parent.is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        in_directory(tmp_path / "file")


def test_ready_while_any_source_can_be_read(tmp_path, start):
    sidecar = start(
        sources=[open_source(str(tmp_path / "events.jsonl")), open_source(str(tmp_path / "other"))]
    )
    sidecar.step()
    ready, why = sidecar.ready()
    assert not ready
    assert "events.jsonl" in why
    assert value(sidecar, "omniwatch_source_up", source=f"tail:{tmp_path}/events.jsonl") == 0
    write(tmp_path / "events.jsonl", audio(0))
    sidecar.step()
    assert sidecar.ready() == (True, "ready")
    assert value(sidecar, "omniwatch_source_up", source=f"tail:{tmp_path}/events.jsonl") == 1


def test_blind_is_who_cannot_read_what_is_there_or_was_since_the_machine_was_started(tmp_path, start):
    spool = tmp_path / "events.jsonl"

    def blind(boot: str) -> float | None:
        sidecar = start(boot=boot)
        found = value(sidecar, "omniwatch_source_blind", source=f"tail:{spool}")
        sidecar.close()
        return found

    assert blind("first") == 0, "its server has not spoken yet"
    write(spool, audio(0))
    assert blind("first") == 0
    spool.unlink()
    assert blind("first") == 1
    assert blind("second") == 0, "the spool went with the machine's memory"
    spool.symlink_to(spool)
    assert blind("second") == 1, "there, and nobody can read it"


def test_healthy_while_the_reader_comes_round(start, times):
    sidecar = start()
    sidecar.step()
    assert sidecar.healthy()[0]
    times.steady += ALIVE_S + 1
    assert not sidecar.healthy()[0]


def test_streams_go_stale_by_the_wall_once_all_is_read(tmp_path, start, times):
    write(tmp_path / "events.jsonl", audio(0))
    sidecar = start()
    assert value(sidecar, "omni_streams") == 1
    times.wall += 61
    times.steady += 61
    assert value(sidecar, "omni_streams") == 0


def test_an_old_file_is_read_in_its_own_time(tmp_path, start, times):
    """Streams long gone by the wall's clock are alive until all is read: their turns are judged as they were."""
    times.wall = T0 + 1e6
    write(tmp_path / "events.jsonl", asked(0), *(audio(i * 0.08, turn=1) for i in range(3000)))
    sidecar = start()
    sidecar.step()
    assert [stream["state"] for stream in sidecar.streams()] == []
    assert value(sidecar, "omni_turns_total", outcome="abandoned") == 1
    assert value(sidecar, "omni_audio_underrun_seconds_total") == 0


def test_the_lag_of_a_source_that_is_behind(tmp_path, start, times):
    write(tmp_path / "events.jsonl", *(audio(i * 0.08) for i in range(3000)))
    times.wall = T0 + 1000
    sidecar = start()
    sidecar.step()
    (intake,) = sidecar.intakes
    assert not intake.source.caught_up
    assert intake.lag_s(times.wall) == pytest.approx(1000 - intake.counts.last_t + T0)


def test_the_lag_shown_is_by_the_wall_clock(tmp_path, start, times):
    write(tmp_path / "events.jsonl", *(audio(i * 0.08) for i in range(12000)))
    times.wall = T0 + 2000
    sidecar = start()
    name = f"tail:{tmp_path / 'events.jsonl'}"
    lag_s = value(sidecar, "omniwatch_source_lag_seconds", source=name)
    assert not sidecar.intakes[0].source.caught_up
    assert lag_s == pytest.approx(T0 + 2000 - sidecar.intakes[0].counts.last_t)
    assert lag_s > 1000


def test_a_source_that_is_behind_holds_up_only_its_own_streams(tmp_path, start, times):
    write(
        tmp_path / "a.jsonl", asked(-600, stream="a"), *(audio(i * 0.08 - 600, turn=1) for i in range(12000))
    )
    write(tmp_path / "b.jsonl", asked(0, stream="b"), writer="w2")
    sources = [open_source(str(tmp_path / name)) for name in ("a.jsonl", "b.jsonl")]
    sidecar = start(sources=sources)
    times.wall = T0 + 28
    silent_s = {stream["id"]: stream["silent_s"] for stream in sidecar.streams()}
    assert not sidecar.intakes[0].source.caught_up
    assert silent_s == {"a": 0.0, "b": pytest.approx(28)}


@pytest.mark.parametrize("junk", [b"\0", b"x"])
def test_what_holds_no_line_is_passed_without_a_pause(tmp_path, start, junk):
    path = tmp_path / "events.jsonl"
    path.write_bytes(junk * (12 * 2**20) + b"\n")
    write(path, audio(0))
    sidecar = start()
    steps = 1
    while not sidecar.table.totals.audio_frames:
        assert sidecar.step(), "the loop would wait, with bytes unread"
        steps += 1
    assert steps < 20
    (invalid,) = [n for n in sidecar.intakes[0].counts.invalid.values() if n]
    assert invalid == 1


def test_a_file_followed_by_its_path_and_by_a_pattern_counts_once(tmp_path, start):
    path = tmp_path / "events.jsonl"
    spool = Spool(path)
    sources = [open_source(str(path)), open_source(f"tail:{tmp_path}/*.jsonl")]
    sidecar = start(sources=sources)
    for i in range(50):
        spool.write(audio(i * 0.08))
        sidecar.step()
    assert sidecar.table.totals.audio_frames == 50
    assert [intake.sequence.lost for intake in sidecar.intakes] == [0, 0]
    assert sum(intake.sequence.repeated for intake in sidecar.intakes) == 50


class Reloads:
    """What a configuration gives when it is read again."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self.error: Exception | None = None
        self.settings = Settings()

    def __call__(self) -> tuple[Settings, list[Source]]:
        if self.error:
            raise self.error
        return self.settings, [open_source(str(path)) for path in self.paths]


def test_a_reload_takes_thresholds_and_sources_and_keeps_counts(tmp_path, start):
    write(tmp_path / "events.jsonl", audio(0, pts_ms=0.0, video_pts_ms=70.0))
    reloads = Reloads([tmp_path / "events.jsonl", tmp_path / "more.jsonl"])
    sidecar = start(load_settings=reloads)
    sidecar.step()
    reloads.settings = Settings(alerts=Alerts(drift_page_ms=75))
    assert sidecar.reload() == (True, "reloaded")
    write(tmp_path / "more.jsonl", audio(1, "b"))
    assert value(sidecar, "omni_audio_frames_total") == 2
    assert value(sidecar, "omni_codec_drift_abs_seconds_bucket", le="0.075") == 0
    assert value(sidecar, "omniwatch_config_last_reload_successful") == 1


def test_a_bad_reload_keeps_the_old_configuration_and_says_so(tmp_path, start):
    reloads = Reloads([tmp_path / "events.jsonl"])
    sidecar = start(load_settings=reloads)
    reloads.error = SettingsError("omniwatch.yaml: alerts: expected a mapping, got 5")
    assert sidecar.reload() == (False, "omniwatch.yaml: alerts: expected a mapping, got 5")
    assert value(sidecar, "omniwatch_config_last_reload_successful") == 0
    write(tmp_path / "events.jsonl", audio(0))
    assert value(sidecar, "omni_audio_frames_total") == 1


def test_bad_lines_are_counted_and_logged_once_a_minute(tmp_path, start, times, caplog):
    path = tmp_path / "events.jsonl"
    sidecar = start()
    with caplog.at_level(logging.WARNING, "omniwatch"):
        for _ in range(3):
            with path.open("ab") as lines:
                lines.write(b"not json\n")
            sidecar.step()
    assert caplog.text.count("a line is no event") == 1
    assert value(sidecar, "omniwatch_events_invalid_total", source=f"tail:{path}", reason="json") == 3


def test_numbers_tell_what_was_lost_and_what_came_again(tmp_path, start):
    path = tmp_path / "events.jsonl"
    write(path, *(audio(i / 10) for i in range(10)))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:4] + lines[2:4] + lines[7:]))
    sidecar = start()
    assert value(sidecar, "omni_audio_frames_total") == 7
    assert value(sidecar, "omniwatch_events_lost_total", source=f"tail:{path}") == 3
    assert value(sidecar, "omniwatch_events_repeated_total", source=f"tail:{path}") == 2
