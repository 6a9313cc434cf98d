"""Turns judged live: as a recording says, after a restart in a turn, with the device's samples, within bounds."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from helpers.events import T0
from helpers.incidents import incident
from omniwatch import events as ev
from omniwatch.core.samples import Sample
from omniwatch.explain.kept import BAD, PAGE_BYTES, shown
from omniwatch.replay.table import RecordedTable
from omniwatch.settings import Settings
from omniwatch.sidecar import device_log
from omniwatch.sidecar.loop import Sidecar
from omniwatch.sources.tail import Tail


class Device:
    """A sidecar whose clock is the newest event's, over restarts."""

    def __init__(self, folder: Path, readings: list[Sample]) -> None:
        self.folder, self.readings, self.taken = folder, readings, 0
        self.events = folder / "events.jsonl"
        self.events.touch()
        self.now = T0
        self.start()

    def start(self) -> None:
        """Start it anew, from its checkpoint and its file of samples."""
        self.sidecar = Sidecar(
            Settings(),
            [Tail(self.events)],
            state_file=self.folder / "checkpoint",
            sampler=lambda settings: self.sample,
            device_file=self.folder / device_log.NAME,
            clock=lambda: self.now,
            monotonic=lambda: self.now - T0 + 1000,
        )

    def sample(self, t: float, speaking: int) -> Sample:
        self.taken += 1
        return msgspec.structs.replace(self.readings[-1] if self.readings else Sample(t), t=t)

    def play(self, lines: list[bytes]) -> None:
        for line in lines:
            event = ev.decode(line)
            assert isinstance(event, ev.Event)
            self.until(event.t)
            with self.events.open("ab") as file:
                file.write(line)
            self.sidecar.step()

    def until(self, t: float) -> None:
        while self.now < t:
            self.now = min(t, self.now + 0.5)
            self.sidecar.step()

    def turns(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.sidecar.turns())["turns"]
        return sorted(found, key=lambda turn: turn["number"])


@pytest.mark.parametrize("seed", [3, 8])
def test_the_same_verdict_live_after_a_restart_in_a_turn_and_from_the_recording(tmp_path, seed):
    played, _ = incident(seed, "thinking", "outage")
    device = Device(tmp_path, [])
    sent = [n for n, line in enumerate(played.lines) if b'"audio"' in line]
    device.play(played.lines[: sent[-3]])
    list(device.sidecar.collect())
    device.sidecar.close()
    device.start()
    device.play(played.lines[sent[-3] :])
    device.until(device.now + 60)
    live = device.turns()

    found: list[dict[str, Any]] = []
    samples = list(device_log.read(tmp_path / device_log.NAME))
    assert samples
    table = RecordedTable(
        Settings(), lambda judged: found.append(json.loads(msgspec.json.encode(shown(judged)))), samples
    )
    for line in played.lines:
        event = ev.decode(line)
        assert isinstance(event, ev.Event)
        table.apply(event)
    table.finish()
    found.sort(key=lambda turn: turn["number"])
    assert any(turn["verdicts"] for turn in found)
    after = [turn for turn in live if turn["number"] > found[-1]["number"] - 2]
    assert after
    assert after == [turn for turn in found if turn["number"] in {mine["number"] for mine in after}]


def a_turn(number: int, begin: float, **words: Any) -> list[bytes]:
    made: list[ev.Event] = [
        ev.TurnStart(t=T0 + begin, stream="s", turn=words.get("turn", number)),
        ev.Audio(t=T0 + begin + 2, stream="s", turn=words.get("turn", number), dur_ms=1000),
        ev.TurnEnd(t=T0 + begin + 2.1, stream="s", turn=words.get("turn", number), reason="completed"),
    ]
    return [ev.encode(event) for event in made]


def test_nothing_is_sampled_or_written_while_nobody_is_answered(tmp_path):
    device = Device(tmp_path, [])
    device.until(T0 + 100)
    assert device.taken == 0
    assert not (tmp_path / device_log.NAME).exists()
    device.play(a_turn(1, 101))
    assert 2 <= device.taken <= 4
    before = device.taken
    device.until(T0 + 200)
    assert device.taken == before


def test_a_sensor_that_fails_stops_nothing(tmp_path):
    device = Device(tmp_path, [])
    device.sample = None  # type: ignore[method-assign]
    device.start()
    device.play(a_turn(1, 10))
    device.until(T0 + 30)
    assert [turn["verdicts"][0]["cause"] for turn in device.turns()] == ["thinking"]


@pytest.mark.slow
def test_the_page_of_turns_is_bounded_and_names_nobody(tmp_path):
    device = Device(tmp_path, [])
    for n in range(BAD + 20):
        device.play(a_turn(n, 10.0 + 12 * n, turn=f"secret-{n}"))
    device.until(device.now + 20)
    page = device.sidecar.turns()
    found = json.loads(page)
    assert (len(found["turns"]), found["turns_judged"]) == (BAD, BAD + 20)
    assert len(page) <= PAGE_BYTES
    assert found["turns"][0]["number"] == BAD + 20
    assert b"secret" not in page


def lies(name: str, begin: float) -> list[ev.Event]:
    """A turn of a client that names itself everywhere, reports what cannot be, and lets its player starve."""
    words = {"stream": name, "turn": name}
    return [
        ev.StreamStart(t=T0 + begin, stream=name, kind=name, peer=name),
        ev.TurnStart(t=T0 + begin, **words),
        ev.Rtt(t=T0 + begin + 1, rtt_ms=1e9, **words),
        ev.Underrun(t=T0 + begin + 1, ms=1e9, source="player", **words),
        *(ev.Audio(t=T0 + begin + 2 * n, dur_ms=40.0, **words) for n in range(1, 5)),
        ev.TurnEnd(t=T0 + begin + 9, reason=name, **words),
    ]


def test_a_client_that_lies_and_opens_a_thousand_streams_stays_within_bounds(tmp_path):
    device = Device(tmp_path, [])
    told = [event for n in range(1000) for event in lies(f"secret-{n}", 10 + n / 20)]
    told.sort(key=lambda event: event.t)
    for n in range(0, len(told), 100):
        with device.events.open("ab") as file:
            file.write(b"".join(map(ev.encode, told[n : n + 100])))
        device.until(told[n].t)
    device.until(T0 + 120)
    families = list(device.sidecar.collect())
    series = [sample for family in families for sample in family.samples]
    assert len([one for one in series if one.name == "omni_turn_bad_now"]) <= Settings().streams.max_streams
    ours = [one for one in series if one.name.startswith(("omni_turn", "omni_audio_ahead"))]
    assert len(ours) < 250
    assert not any("secret" in value for one in series for value in one.labels.values())
    page = device.sidecar.turns()
    assert len(page) <= PAGE_BYTES
    assert b"secret" not in page
    assert json.loads(page)["turns_judged"] > 0
    assert all(math.isfinite(one.value) for one in ours if "_bucket" not in one.name)
    device.sidecar.close()
    assert (tmp_path / "checkpoint").stat().st_size < 512 * 1024


def test_the_file_of_samples_is_two_files_of_a_bounded_size(tmp_path, monkeypatch):
    monkeypatch.setattr(device_log, "MAX_BYTES", 2000)
    path = tmp_path / device_log.NAME
    for n in range(300):
        device_log.append(path, Sample(float(n), 1, 2.5))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["device.jsonl", "device.jsonl.1"]
    assert all(file.stat().st_size < 2100 for file in tmp_path.iterdir())
    times = [sample.t for sample in device_log.read(path)]
    assert times == [float(n) for n in range(300 - len(times), 300)]
    with path.open("ab") as file:
        file.write(b"no sample\n\xff\n{}\n")
    assert [sample.t for sample in device_log.read(path)] == times
