"""What the live page shows of a recording, at any second of it."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from omniwatch import events as ev
from omniwatch.core.rule_states import contract_rules, spans
from omniwatch.core.turns import Judged
from omniwatch.desk.simulation import SCENARIOS, events
from omniwatch.live import recorded
from omniwatch.live.recorded import ReadAtOnce, Recorded
from omniwatch.replay import Replay
from omniwatch.replay.recording import Recording
from omniwatch.settings import Settings

START_T = 1_768_478_400.0


def keep(found: Iterable[ev.Event], tmp_path: Path) -> Recorded:
    (tmp_path / "events.jsonl").touch()
    intake = ReadAtOnce(Recording(str(tmp_path / "events.jsonl")))
    judged: list[Judged] = []
    table = Recorded(Settings(), "events.jsonl", intake, judged.append)
    table.apply_all(found)
    table.finish()
    return table


def shown(table: Recorded, moment: int | None = None) -> dict[str, Any]:
    return msgspec.json.decode(table.answer("" if moment is None else f"at.{moment}"))


def frames(count: int, start_t: float = START_T, first: int = 0) -> list[ev.Event]:
    numbers = range(first, first + count)
    return [ev.Video(t=start_t + n - first, stream="a", pts_ms=n * 1000) for n in numbers]


@pytest.fixture(scope="module")
def overload() -> list[ev.Event]:
    scenario = SCENARIOS["overload"]
    return list(events(scenario, 1, START_T, scenario.duration_s))


def test_the_curve_and_the_states_are_those_of_replay(overload, tmp_path) -> None:
    replay = Replay(Settings())
    replay.apply_all(overload)
    replay.finish()
    (track,) = replay.tracks.values()
    page = shown(keep(overload, tmp_path))
    drift = page["history"]["columns"]["0"]["drift"]
    start_t = page["history"]["start"]
    seen = {s.t: s.drift_ms for s in track.samples if s.drift_ms is not None}
    same = {t: drift[int(t - start_t)] for t in seen}
    assert len(seen) > 100
    assert same == pytest.approx(seen, abs=0.06)
    eval_s = Settings().alerts.evaluation_interval_s
    of_replay = {
        (rule.name, span.state, span.start_t, span.end_t)
        for rule in contract_rules(Settings().alerts)
        for span in spans(rule, track.samples, eval_s)
    }
    assert {(s["rule"], s["state"], s["start"], s["end"]) for s in page["states"]} == of_replay


def test_a_moment_knows_nothing_of_what_came_later(overload, tmp_path) -> None:
    table = keep(overload, tmp_path)
    page = shown(table, 100)
    assert page["replay"] == {"file": "events.jsonl", "moment": 100, "moments": 201, "step": 1}
    assert page["history"]["count"] == 101
    assert page["now"] == page["history"]["start"] + 100
    (firing,) = (s for s in page["states"] if s["state"] == "firing" and s["rule"] == "CodecDrift")
    assert firing["end"] is None
    assert page["state"]["key"] == "firing"
    assert 0 < len(page["turns"]) < len(shown(table)["turns"])
    assert page["listeners"][0]["bad"]["number"] == page["turns"][-1]["number"]
    assert shown(table, 0)["turns"] == shown(table, 0)["states"] == []
    columns = shown(table)["history"]["columns"]["0"]
    assert page["history"]["columns"]["0"] == {name: values[:101] for name, values in columns.items()}


@pytest.mark.parametrize("cursor", ["", "at.", "at.999999", "at.-1", "at.9999999999", "a.b", "\x00"])
def test_a_cursor_that_is_none_gets_the_last_moment(cursor, overload, tmp_path) -> None:
    table = keep(overload[:500], tmp_path)
    assert table.answer(cursor) == table.answer("")
    assert gzip.decompress(table.packed(cursor, True)) == table.packed(cursor, False) == table.answer("")


def test_of_a_long_recording_every_second_moment_is_kept(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(recorded, "MOST", 100)
    page = shown(keep(frames(350), tmp_path))
    assert page["history"]["step"] == page["replay"]["step"] == 4
    assert 50 <= page["replay"]["moments"] <= 100
    assert page["history"]["count"] == page["replay"]["moments"]
    assert page["history"]["start"] == pytest.approx(START_T, abs=8)


def test_a_jump_of_the_times_is_not_waited_out(tmp_path) -> None:
    years = 20 * 365 * 86_400.0
    table = keep([*frames(50), *frames(50, START_T + years, 50), *frames(50, START_T, 100)], tmp_path)
    assert 150 <= shown(table)["replay"]["moments"] <= 156
    assert shown(table, 60)["now"] == pytest.approx(START_T + years + 10, abs=2)
    assert shown(table)["now"] == pytest.approx(START_T + 50, abs=2)


def test_a_pause_is_a_gap(tmp_path) -> None:
    page = shown(keep([*frames(50), *frames(50, START_T + 120, 50)], tmp_path))
    assert page["history"]["count"] == pytest.approx(171, abs=1)
