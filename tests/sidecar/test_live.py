"""The live page's feed of a sidecar: whole, increment, restarts, clocks, what it costs and what it keeps to itself."""

from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily

from helpers.events import T0, asked, audio, ended
from helpers.sidecars import Times, value, write
from omniwatch import events as ev
from omniwatch.live.history import SECONDS
from omniwatch.settings import Settings, Site
from omniwatch.sidecar import live
from omniwatch.sidecar.loop import Sidecar
from omniwatch.sources.tail import Tail


class Device:
    """A sidecar on a folder whose clocks are set by hand."""

    def __init__(self, folder: Path, times: Times, settings: Settings | None = None) -> None:
        self.folder, self.times, self.settings = folder, times, settings or Settings()
        self.events, self.reads = folder / "events.jsonl", 0
        self.events.touch()
        self.start()

    def start(self) -> None:
        self.sidecar = Sidecar(
            self.settings,
            [Tail(self.events)],
            state_file=self.folder / "checkpoint",
            host=lambda settings: self.machine,
            clock=lambda: self.times.wall,
            monotonic=lambda: self.times.steady,
        )

    def machine(self) -> list[GaugeMetricFamily]:
        self.reads += 1
        return [GaugeMetricFamily("omni_device_memory_bytes", "Memory.", value=64e9)]

    def pass_by(self, seconds: float, step_s: float = 0.5) -> None:
        for _ in range(round(seconds / step_s)):
            self.times.wall += step_s
            self.times.steady += step_s
            self.sidecar.step()

    def lags(self, seconds: float, lag_ms: float) -> None:
        """Let a listener hear a voice that lags by so much."""
        for _ in range(round(seconds / 0.5)):
            at = self.times.wall - T0
            write(self.events, audio(at, pts_ms=at * 1000 - lag_ms, video_pts_ms=at * 1000), writer=f"w{at}")
            self.pass_by(0.5)

    def feed(self, since: str = "") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.sidecar.live(since, packed=False))
        return found


@pytest.fixture
def device(tmp_path: Path, times: Times) -> Device:
    return Device(tmp_path, times)


def exposed(sidecar: Sidecar) -> str:
    registry = CollectorRegistry()
    registry.register(sidecar)
    lines = generate_latest(registry).decode().replace(str(sidecar.intakes[0].name), "").splitlines()
    return "\n".join(line for line in lines if not line.startswith("omniwatch_source_free_bytes"))


def test_the_whole_then_what_is_new(device):
    device.lags(20, 90)
    whole = device.feed()
    assert (whole["schema"], whole["reset"], whole["history"]["step"]) == (1, True, 1)
    history = whole["history"]
    assert history["start"] + history["count"] - 1 == pytest.approx(whole["now"], abs=1)
    assert history["columns"]["0"]["drift"][-1] == -90 == whole["listeners"][0]["drift_ms"]
    assert whole["listeners"][0]["drift_ms"] == value(device.sidecar, "omni_codec_drift_ms", stream="0")
    assert [(s["rule"], s["slot"], s["state"], s["end"]) for s in whole["states"]][-1] == (
        "CodecDrift",
        0,
        "firing",
        None,
    )
    assert whole["state"]["key"] == "firing"
    assert whole["state"]["since"] == whole["states"][-1]["start"]

    device.lags(2, 91)
    more = device.feed(whole["cursor"])
    assert (more["reset"], more["run"]) == (False, whole["run"])
    assert more["history"]["first"] == history["first"] + history["count"]
    assert more["history"]["columns"] == {"0": {"drift": [-91, -91]}}
    assert [s["state"] for s in more["states"]] == ["pending", "firing"]
    nothing = device.feed(more["cursor"])
    assert (nothing["history"]["count"], nothing["history"]["columns"], nothing["reset"]) == (0, {}, False)


@pytest.mark.parametrize(
    "cursor", ["x", "0.1.0", "{run}.99999999.0", "{run}.1.7", "{run}.1", "{run}.-1.0", "\u0663"]
)
def test_a_cursor_that_is_none_gets_the_whole(device, cursor):
    device.lags(5, 10)
    run = device.feed()["run"]
    assert device.feed(cursor.format(run=run))["reset"]


def test_a_cursor_that_is_too_old_gets_the_whole(device):
    device.lags(5, 10)
    cursor = device.feed()["cursor"]
    device.pass_by(SECONDS - 2)
    assert not device.feed(cursor)["reset"]
    device.pass_by(4)
    assert device.feed(cursor)["reset"]


def test_a_bad_turn_is_told_once_and_shown_whole_on_its_own(device):
    write(device.events, asked(0), audio(3.0, dur_ms=1000, turn=1), ended(3.1))
    before = device.feed()["cursor"]
    device.pass_by(12)
    more, whole = device.feed(before), device.feed()
    (turn,) = more["turns"]
    assert (more["reset"], whole["turns"]) == (False, [turn])
    assert (turn["slot"], turn["verdicts"][0]["symptom"], whole["turns_judged"]) == (0, "late", 1)
    bad = whole["listeners"][0]["bad"]
    assert (bad["number"], bad["symptom"]) == (turn["number"], "late")
    assert device.feed(whole["cursor"])["turns"] == []
    one = json.loads(device.sidecar.turn(turn["number"]) or b"")
    assert one["turn"]["number"] == turn["number"]
    assert one["text"].startswith(f"turn {turn['number']}, slot 0")
    assert "late:" in one["text"]
    assert device.sidecar.turn(99) is None


def test_pages_share_what_a_second_needs_and_the_machine_is_read_once_for_pages_and_scrapes(device):
    device.lags(3, 10)
    reads = device.reads
    answers = {device.sidecar.live("", packed=False) for _ in range(20)}
    assert len(answers) == 1
    value(device.sidecar, "omni_streams")
    assert device.reads == reads + 1
    assert gzip.decompress(device.sidecar.live("", packed=True)) == answers.pop()
    device.pass_by(1)
    assert device.feed()["device"] == {"memory_total_bytes": 64e9}
    assert device.reads == reads + 2


def test_looking_moves_no_count(tmp_path, times):
    folders = [tmp_path / "seen", tmp_path / "unseen"]
    for folder in folders:
        folder.mkdir()
    seen, unseen = (Device(folder, Times()) for folder in folders)
    for device in (seen, unseen):
        write(
            device.events, asked(0), audio(3.0, dur_ms=1000, turn=1), audio(4.6, dur_ms=300, turn=1), ended(5)
        )
    for _ in range(40):
        for device in (seen, unseen):
            device.pass_by(0.5)
        seen.feed()
    shown = [exposed(device.sidecar) for device in (seen, unseen)]
    assert shown[0] == shown[1]
    assert 'omni_turns_bad_total{cause="warmup",symptom="late"} 1.0' in shown[0]


def test_no_id_and_no_peer_unless_the_settings_say_so(tmp_path, times):
    began = ev.StreamStart(t=T0, stream="sess-<script>", peer="10.9.8.7:5123")
    for details in (False, True):
        folder = tmp_path / str(details)
        folder.mkdir()
        device = Device(folder, Times(), Settings(site=Site(live_details=details)))
        write(device.events, began)
        device.pass_by(2)
        raw = device.sidecar.live("", packed=False).decode()
        assert ("sess-<script>" in raw, "10.9.8.7" in raw) == (details, details)
        assert json.loads(raw)["listeners"][0].get("id") == ("sess-<script>" if details else None)


def test_a_listeners_own_underrun_and_last_return_are_in_its_row_over_a_restart(device):
    write(
        device.events,
        asked(0),
        audio(0.2, dur_ms=1000, turn=1),
        audio(2.2, dur_ms=300, turn=1),
        ev.Resume(t=T0 + 2.3, stream="a", last_good_id=1, result="hit"),
        ev.Resume(t=T0 + 2.4, stream="a", last_good_id=1, result="junk"),
    )
    device.pass_by(2)
    for _ in range(2):
        (row,) = device.feed()["listeners"]
        assert (
            row["underrun_s"]
            == pytest.approx(0.92)
            == value(device.sidecar, "omni_audio_underrun_seconds_total")
        )
        assert row["resume"] == {"t": T0 + 2.3, "result": "hit"}
        device.sidecar.close()
        device.start()
        device.pass_by(1)


def test_history_survives_a_restart_in_a_file_that_is_written_at_most_once_a_minute(device):
    device.lags(10, 90)
    file = device.folder / live.NAME
    first = file.read_bytes()
    device.lags(40, 90)
    assert file.read_bytes() == first
    device.lags(20, 90)
    second = file.read_bytes()
    assert second != first
    device.pass_by(180)
    third = file.read_bytes()
    device.pass_by(600)
    assert file.read_bytes() == third, "nothing changed: nothing is written"
    before = device.feed()
    device.sidecar.close()
    device.times.wall, device.times.steady = device.times.wall + 30, 5.0
    device.start()
    device.pass_by(1)
    after = device.feed(before["cursor"])
    assert after["reset"]
    assert after["run"] != before["run"]
    drifts = after["history"]["columns"]["0"]["drift"]
    assert drifts.count(-90) == pytest.approx(before["history"]["columns"]["0"]["drift"].count(-90), abs=2)
    assert [s for s in after["states"] if s["state"] == "firing"] == [
        s for s in before["states"] if s["state"] == "firing"
    ]


def test_what_is_known_is_written_at_the_end(device):
    device.lags(10, 90)
    device.lags(10, 70)
    stop = live.threading.Event()
    stop.set()
    device.sidecar.run(stop)
    device.start()
    device.pass_by(1)
    assert -70 in device.feed()["history"]["columns"]["0"]["drift"]


@pytest.mark.parametrize("content", [b"", b"junk", b"omniwatch\0\x07" + b"\0" * 40])
def test_a_file_that_cannot_be_read_is_a_log_line_and_an_empty_history(tmp_path, times, content, caplog):
    (tmp_path / live.NAME).write_bytes(content)
    with caplog.at_level(logging.WARNING, "omniwatch"):
        device = Device(tmp_path, times)
    assert "history cannot be read" in caplog.text
    device.lags(3, 10)
    assert (
        set(device.feed()["history"]["columns"]["0"]["drift"]) == {None, -10}
        or device.feed()["history"]["count"] <= 4
    )


def test_a_full_disk_costs_the_history_and_no_scrape(device, monkeypatch, caplog):
    def full(path: Path, payload: bytes) -> None:
        raise OSError(28, "No space left on device")

    device.lags(2, 10)
    monkeypatch.setattr(live.checkpoint, "save", full)
    with caplog.at_level(logging.WARNING, "omniwatch"):
        device.lags(70, 10)
    assert caplog.text.count("history not written") == 1
    assert value(device.sidecar, "omni_codec_drift_ms", stream="0") == -10
    assert device.feed()["listeners"][0]["drift_ms"] == -10


@pytest.mark.parametrize("by_s", [-7200, 7200])
def test_a_clock_that_is_set_begins_a_run_and_draws_nothing_backwards(device, by_s):
    device.lags(20, 90)
    before = device.feed()
    device.times.wall += by_s
    device.pass_by(1)
    after = device.feed(before["cursor"])
    assert after["reset"]
    assert after["run"] != before["run"]
    assert after["history"]["start"] == pytest.approx(before["history"]["start"] + by_s, abs=0.6)
    assert after["history"]["start"] + after["history"]["count"] - 1 == pytest.approx(after["now"], abs=1)


def test_the_worst_is_first_and_64_at_most(tmp_path, times):
    device = Device(tmp_path, times, Settings())
    for number in range(70):
        write(
            device.events, audio(0, f"s{number}", pts_ms=float(number), video_pts_ms=0.0), writer=f"w{number}"
        )
    device.pass_by(2)
    found = device.feed()
    assert len(found["listeners"]) == 64
    assert found["more"] == 6
    drifts = [abs(row["drift_ms"]) for row in found["listeners"]]
    assert drifts == sorted(drifts, reverse=True)
