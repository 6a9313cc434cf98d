"""Replays: what each stream of a recording went through, and the command that tells it."""

from __future__ import annotations

import gzip
import json
import os
import pty
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from omniwatch import events as ev
from omniwatch.cli import NO_SAMPLES, main
from omniwatch.core.rule_states import Sample, Span, contract_rules, spans
from omniwatch.desk.simulation import SCENARIOS, events
from omniwatch.replay import Replay, clock
from omniwatch.settings import Alerts, Settings, Streams

T0 = 1_700_000_000.0


def replayed(*made: ev.Event, settings: Settings | None = None) -> Replay:
    replay = Replay(settings or Settings())
    for event in made:
        replay.apply(event)
    replay.finish()
    return replay


def speech(
    begin_t: float, seconds: float, drift_ms: float, stream: str = "a", turn: int = 1
) -> list[ev.Event]:
    """A turn asked half a second before its first frame, at one and the same drift."""
    asked = ev.TurnStart(t=begin_t - 0.5, stream=stream, turn=turn)
    frames = [
        ev.Audio(
            t=begin_t + k * 0.08, stream=stream, turn=turn, pts_ms=80.0 * k + drift_ms, video_pts_ms=80.0 * k
        )
        for k in range(round(seconds / 0.08))
    ]
    return [asked, *frames, ev.TurnEnd(t=begin_t + seconds, stream=stream, turn=turn, reason="stop")]


def test_a_track_is_sampled_at_each_scrape_with_all_that_came_before_it():
    replay = replayed(*speech(T0 + 0.7, 4.0, 12.0))
    (track,) = replay.tracks.values()
    assert track.samples == [
        Sample(T0 + 1 + k, 12.0, pytest.approx(500, abs=0.01), "server") for k in range(4)
    ]
    assert (track.drift_ms, track.drift_low_ms, track.drift_high_ms, track.worst_ms) == (12, 12, 12, 12)
    assert track.totals.audio_frames == 50
    assert track.totals.turns["completed"] == 1


def test_scrapes_are_as_far_apart_as_the_settings_say():
    settings = Settings(alerts=Alerts(scrape_interval_s=5))
    (track,) = replayed(*speech(T0 + 1, 20, 0.0), settings=settings).tracks.values()
    assert [sample.t - T0 for sample in track.samples] == [5, 10, 15, 20]


def test_a_stream_that_went_stale_vanishes_once_and_may_come_back():
    settings = Settings(streams=Streams(stale_after_s=10))
    replay = replayed(*speech(T0 + 1, 3, 70.0), *speech(T0 + 500.5, 3, 70.0, turn=2), settings=settings)
    (track,) = replay.tracks.values()
    times = [sample.t - T0 for sample in track.samples]
    assert times == [*range(1, 16), 500, 501, 502, 503]
    assert [sample.has_series for sample in track.samples] == [True] * 14 + [False] * 2 + [True] * 3
    assert track.rtts_ms["server"] == pytest.approx([500, 500], abs=0.01)


def test_a_stream_is_carried_on_to_the_recordings_end():
    replay = replayed(*speech(T0 + 1, 3, 70.0, "a"), *speech(T0 + 20, 10, 0.0, "b"))
    first, second = replay.tracks.values()
    assert (first.samples[-1].t, second.samples[-1].t) == (T0 + 29, T0 + 29)
    rule, _ = contract_rules(replay.settings.alerts)
    assert spans(rule, first.samples, 5) == [
        Span("pending", T0 + 5, T0 + 15),
    ], "what was stated is kept for 9 s after the last word"
    assert spans(rule, second.samples, 5) == []


def test_a_clock_set_back_goes_on_being_sampled():
    replay = replayed(*speech(T0 + 5000, 5, 10.0), *speech(T0, 5, -20.0, turn=2))
    (track,) = replay.tracks.values()
    assert [sample.t - T0 for sample in track.samples][-4:] == [1, 2, 3, 4]
    assert track.samples[-1].drift_ms == -20
    assert (track.drift_low_ms, track.drift_high_ms, track.worst_ms, track.worst_turn) == (-20, 10, 20, 2)


def test_a_time_far_ahead_does_not_take_forever():
    replay = replayed(
        *speech(T0, 2, 0.0), ev.Video(t=9e10, stream="a", pts_ms=0), *speech(T0 + 9, 2, 0.0, turn=2)
    )
    (track,) = replay.tracks.values()
    assert len(track.samples) < 100


def test_round_trips_are_the_clients_where_it_measured_any():
    mine = [ev.Rtt(t=T0 + 1 + k, stream="a", rtt_ms=900.0 + k) for k in range(3)]
    (track,) = replayed(*speech(T0 + 0.5, 0.4, 0.0), *mine, *speech(T0 + 5, 30, 0.0, turn=2)).tracks.values()
    assert track.vantage == "client"
    assert track.rtts_ms == {"server": pytest.approx([500, 500], abs=0.01), "client": [900, 901, 902]}
    _, rule = contract_rules(Alerts())
    assert [span.state for span in spans(rule, track.samples, 5)] == ["pending", "firing"]


def test_the_replays_own_table_counts_all_streams_together():
    replay = replayed(*speech(T0 + 1, 4, 0.0, "a"), *speech(T0 + 2, 8, 0.0, "b"))
    assert replay.totals.audio_frames == 150
    assert [track.totals.audio_frames for track in replay.tracks.values()] == [50, 100]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (65.4, "1:05"), (3599.6, "1:00:00"), (36125, "10:02:05")]
)
def test_times_are_written_as_a_clock_shows_them(seconds, text):
    assert clock(seconds) == text


@pytest.fixture(scope="module")
def overload(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("recording") / "overload.jsonl"
    made = events(SCENARIOS["overload"], 1, T0, 200)
    path.write_bytes(b"".join(map(ev.encode, made)))
    return path


def run(*arguments: object, text: bytes | None = None) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, ["replay", *map(str, arguments)], input=text)
    return done.exit_code, done.stdout, done.stderr


def piped(data: bytes, *arguments: str) -> str:
    replay = [sys.executable, "-m", "omniwatch", "replay", "--config.file=/dev/null", "-", *arguments]
    return subprocess.run(replay, input=data, capture_output=True, timeout=60, check=True).stdout.decode()


def test_the_table_of_a_recording(overload):
    code, printed, errors = run(overload)
    assert (code, errors) == (0, "")
    assert printed.splitlines()[0].endswith(" events, 3:20 from 2023-11-14 22:13:20 UTC")
    assert printed.splitlines()[1:6] == [
        "",
        "9 of 14 turns judged were bad",
        "  late        thinking        9  100 %",
        "  skewed      camera          8   89 %",
        "",
    ]
    assert "\noverload-1-0  (sliced, 0:00 to 3:20)\n  turns       15: 14 completed, 1 open\n" in printed
    assert "\n  frames      0 lost (0 runs), 0 late, 0 duplicate, 0 corrupt\n" in printed
    assert "\n  round trip  median 991 ms, longest 1452, seen by the server\n" in printed
    assert "\n  CodecDrift  pending 1:05, firing 1:20 to 2:25 (65 s)\n" in printed
    assert "\n              pending 1 time without firing (5 s)\n" in printed
    assert printed.endswith(
        "\n  TokenRTT    pending 1:00, firing 1:20 to 2:30 (70 s)\n              pending 1 time without firing (10 s)\n"
        f"\n{NO_SAMPLES}\n"
    )


def test_the_bad_turns_are_those_of_explain(overload):
    found = json.loads(CliRunner().invoke(main, ["explain", "--file", str(overload), "--json"]).stdout)
    pairs = Counter((bad["symptom"], bad["cause"]) for turn in found["turns"] for bad in turn["verdicts"])
    first, *rows = run(overload)[1].split("\n\n")[1].splitlines()
    assert first == f"{found['turns_bad']} of {found['turns_judged']} turns judged were bad"
    assert {(row.split()[0], row.split()[1]): int(row.split()[2]) for row in rows} == pairs


def test_samples_of_the_device_name_causes(tmp_path):
    file, samples = tmp_path / "events.jsonl", tmp_path / "samples.jsonl"
    made = speech(T0 + 1, 3, 0.0)
    made[0].t -= 2
    file.write_bytes(b"".join(map(ev.encode, made)))
    seconds = [{"t": T0 - 2 + n, "throttled_s": 0.8 * n} for n in range(5)]
    samples.write_text("".join(json.dumps(sample) + "\n" for sample in seconds))
    without, given = run(file), run(file, "--device", samples)
    assert "\n  late        thinking        1  100 %\n" in without[1]
    assert "\n  late        quota           1  100 %\n" in given[1]
    assert (NO_SAMPLES in without[1], NO_SAMPLES in given[1]) == (True, False)
    bad = 'omni_turns_bad_total{cause="quota",symptom="late"}'
    assert f"{bad} 0.0" in run(file, "--metrics", "--device", samples)[1], (
        "it is judged later than the recording ends"
    )
    samples.rename(tmp_path / "device.jsonl")
    assert run(file) == given


def test_on_a_device_the_samples_lie_in_a_directory_beside_the_events(overload, tmp_path):
    events_of, samples_of = tmp_path / "omniwatch", tmp_path / "omniwatch-device"
    for folder in (events_of, samples_of):
        folder.mkdir()
    shutil.copy(overload, events_of / "events.jsonl")
    assert NO_SAMPLES in run(events_of / "events.jsonl")[1]
    (samples_of / "device.jsonl").write_text('{"t": 1.0}\n')
    assert NO_SAMPLES not in run(events_of / "events.jsonl")[1]


def test_of_good_turns_nothing_is_said(tmp_path):
    file = tmp_path / "events.jsonl"
    file.write_bytes(b"".join(map(ev.encode, speech(T0 + 1, 3, 0.0))))
    _, printed, errors = run(file)
    assert ("judged" in printed, errors) == (False, "")


def test_gzip_and_standard_input_give_the_same(overload, tmp_path):
    expected = run(overload)[1]
    zipped = tmp_path / "events.jsonl.gz"
    zipped.write_bytes(gzip.compress(overload.read_bytes()))
    assert run(zipped)[1] == expected
    assert piped(overload.read_bytes()) == expected
    assert piped(overload.read_bytes().rstrip(b"\n")) == expected


def test_the_settings_thresholds_and_times_are_used(overload, tmp_path):
    settings = tmp_path / "omniwatch.yaml"
    settings.write_text(
        "alerts: {drift_page_ms: 150, drift_for_s: 5, rtt_page_ms: 2000, evaluation_interval_s: 10}\n"
    )
    code, printed, _ = run(overload, "--config.file", settings)
    assert code == 0
    assert "  CodecDrift  pending 2:10, firing 2:20 to 2:30 (10 s)\n  TokenRTT    never\n" in printed


def test_an_alert_without_an_end_and_one_that_never_fired(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(map(ev.encode, [*speech(T0 + 1, 8, 70.0), *speech(T0 + 12, 30, 0.0, turn=2)])))
    assert "  CodecDrift  pending 1 time without firing (10 s)\n" in run(path)[1]
    path.write_bytes(b"".join(map(ev.encode, speech(T0 + 1, 40, 70.0))))
    assert "  CodecDrift  pending 0:04, firing 0:20 still at the end (20 s)\n" in run(path)[1]


def test_streams_without_curves_and_odd_lines_are_told_of(tmp_path):
    path = tmp_path / "events.jsonl"
    lines = [
        ev.encode(ev.StreamStart(t=T0, stream="quiet", w="w", n=0)),
        ev.encode(ev.Video(t=T0 + 1, stream="quiet", pts_ms=0, w="w", n=1)),
        ev.encode(ev.Video(t=T0 + 1, stream="quiet", pts_ms=0, w="w", n=1)),
        ev.encode(ev.Video(t=T0 + 9, stream="quiet", pts_ms=0, w="w", n=5)),
        b"not an event\n",
        b"{" + b" " * 70_000 + b"\n",
        b'{"ev":"video","t":1,"stream":"cut',
    ]
    path.write_bytes(b"".join(lines))
    code, printed, _ = run(path)
    assert code == 0
    first, _, *rest = printed.splitlines()
    assert first == (
        "3 events, 0:09 from 2023-11-14 22:13:20 UTC; 2 lines refused: json; 1 line refused: oversize; "
        "3 events lost; 1 repeated"
    )
    assert rest == [
        "quiet  (0:00 to 0:09)",
        "  turns       0",
        "  speech      0.0 s in 0 frames; underrun 0.0 s",
        "  frames      0 lost (0 runs), 0 late, 0 duplicate, 0 corrupt",
        "  drift       none",
        "  round trip  none",
        "  CodecDrift  never",
        "  TokenRTT    never",
    ]


def test_the_metrics_are_what_the_sidecar_would_show_at_the_end(overload):
    code, printed, _ = run(overload, "--metrics")
    assert code == 0
    families = {family.name: family for family in text_string_to_metric_families(printed)}
    samples = {
        (s.name, *sorted(s.labels.values())): s.value for family in families.values() for s in family.samples
    }
    made = list(events(SCENARIOS["overload"], 1, T0, 200))
    spoken = [event for event in made if isinstance(event, ev.Audio)]
    assert samples["omni_codec_drift_ms", "0"] == pytest.approx(spoken[-1].pts_ms - spoken[-1].video_pts_ms)
    assert samples["omni_audio_frames_total",] == len(spoken)
    assert samples["omni_codec_realign_total",] == 1
    assert samples["omniwatch_events_total", "audio", "replay"] == len(spoken)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such-file"], "no-such-file: No such file or directory"),
        (["."], ".: Is a directory"),
        (["empty"], "empty: no event in it"),
        (["noise"], "noise: no event in it, 2 lines refused"),
        (["plain.gz"], "plain.gz: Not a gzipped file (b'{\"')"),
        (["short.gz"], "short.gz: Compressed file ended before the end-of-stream marker was reached"),
        (["good", "--config.file", "gone.yaml"], "gone.yaml: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    good = b"".join(map(ev.encode, speech(T0 + 1, 2, 0.0)))
    Path("good").write_bytes(good)
    Path("empty").write_bytes(b"")
    Path("noise").write_bytes(b"a\nb\n")
    Path("plain.gz").write_bytes(good)
    Path("short.gz").write_bytes(gzip.compress(good)[:-20])
    before = sorted(tmp_path.iterdir())
    assert run(*arguments) == (2, "", f"Error: {message}\n")
    assert sorted(tmp_path.iterdir()) == before


def test_a_terminal_sees_how_far_it_is(overload):
    terminal, side = pty.openpty()
    replay = [sys.executable, "-m", "omniwatch", "replay", "--config.file=/dev/null", str(overload)]
    done = subprocess.run(replay, stderr=side, stdout=subprocess.PIPE, timeout=60, check=True)
    os.close(side)
    shown = os.read(terminal, 65536).decode()
    os.close(terminal)
    assert "replaying" in shown
    assert "100%" in shown
    assert done.stdout.decode() == run(overload)[1]


@pytest.mark.slow
def test_a_simulation_pipes_into_a_replay(overload):
    omniwatch = f"{sys.executable} -m omniwatch"
    pipeline = f"{omniwatch} simulate --scenario overload --speed max --start-time {T0} | {omniwatch} replay --config.file=/dev/null -"
    done = subprocess.run(pipeline, shell=True, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == run(overload)[1:]


def test_a_stream_with_interruptions_says_what_they_cost(tmp_path):
    path = tmp_path / "recording.jsonl"
    path.write_bytes(b"".join(map(ev.encode, events(SCENARIOS["barge-in"], 1, T0, 100.0))))
    done = CliRunner().invoke(main, ["replay", str(path)])
    (row,) = [line for line in done.output.splitlines() if line.startswith("  interrupted ")]
    assert (
        row
        == "  interrupted 12 times, on the average 0.56 s stale, 0.08 s unheard, 0.48 s until the next answer"
    )
