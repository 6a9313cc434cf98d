"""Incidents through the real promtool and Prometheus: what each rule would have done, to the second."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from helpers.backtest_command import T0, backtested, lives, outcomes, record, run
from helpers.bundles import promtool
from helpers.waiting import wait_until
from omniwatch import events as ev
from omniwatch.core.rule_states import contract_rules, spans
from omniwatch.desk.backtest import site
from omniwatch.desk.backtest.recording_source import Moments
from omniwatch.desk.backtest.scrapes import Scrapes
from omniwatch.desk.simulation import SCENARIOS, Scenario, events
from omniwatch.desk.simulation.scenarios import Condition
from omniwatch.events import Event
from omniwatch.replay import Replay
from omniwatch.replay.recording import Recording
from omniwatch.settings import Settings

DRIFTING = msgspec.structs.replace(
    SCENARIOS["progressive-drift"], duration_s=100.0, mended_at_s=80.0, fault=Condition(drift_ppm=-1500.0)
)
OMNIWATCH = [sys.executable, "-m", "omniwatch"]


def made(scenario: Scenario) -> list[Event]:
    return list(events(scenario, 1, T0, scenario.duration_s))


@pytest.fixture(scope="module")
def drifting(tmp_path_factory) -> Path:
    return record(tmp_path_factory.mktemp("recording") / "drifting.jsonl", made(DRIFTING))


@pytest.fixture(scope="module")
def late(tmp_path_factory) -> Path:
    return record(tmp_path_factory.mktemp("recording") / "late.jsonl", made(SCENARIOS["late-answers"]))


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch) -> Path:
    """Where temporary directories are made: nothing may be left there."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield place
    assert list(place.iterdir()) == []


def by_the_replay(recorded: Sequence[Event]) -> dict[str, list[tuple[float, float | None]]]:
    """When the contract's two rules fired and were over, as `omniwatch replay` says."""
    replay = Replay(Settings())
    replay.apply_all(recorded)
    replay.finish()
    every_s = replay.settings.alerts.evaluation_interval_s
    return {
        rule.name: [
            (span.start_t - T0, span.end_t - T0 if span.over else None)
            for track in replay.tracks.values()
            for span in spans(rule, track.samples, every_s)
            if span.state == "firing"
        ]
        for rule in contract_rules(replay.settings.alerts)
    }


def test_drift_fires_at_the_second_the_simulation_says(drifting):
    """60 ms at 1.5 ms a second are passed after 40 s, 15 s later it pages; realigned at 80 s it is over."""
    found = backtested(drifting)
    stated = [(e.t - T0, e.pts_ms - e.video_pts_ms) for e in made(DRIFTING) if isinstance(e, ev.Audio)]
    over = [at for at in range(0, 100, 5) if abs([drift for t, drift in stated if t <= at or t < 2][-1]) > 60]
    *_, (pending, firing, resolved) = lives(found, "CodecDrift")
    assert (firing, resolved) == (pending + 15, 85)
    assert list(range(pending, resolved, 5)) == [at for at in over if at >= pending]
    assert pending - 5 not in over
    assert abs(pending - ceil(40 / 5) * 5) <= 15, "the stamps are off by up to 25 ms, which is 17 s of drift"
    assert by_the_replay(made(DRIFTING))["CodecDrift"] == [(firing, resolved)]


def test_late_answers_fire_and_nothing_of_drift(late):
    found = backtested(late)
    assert [life[1:] for life in lives(found, "TokenRTT")] == by_the_replay(made(SCENARIOS["late-answers"]))[
        "TokenRTT"
    ]
    said = outcomes(found)
    assert (said["TokenRTT"], said["CodecDrift"], said["StreamSilent"]) == ("fired", "silent", "silent")
    assert (said["CPUThrottling"], said["ModelServerDown"], said["SidecarBlind"]) == (
        "missing",
        "missing",
        "missing",
    )
    assert said["SidecarImpaired"] == "silent"


def test_a_reconnect_that_jumps_fires_once(tmp_path):
    scenario = SCENARIOS["reconnect-jump"]
    found = backtested(record(tmp_path / "events.jsonl", made(scenario)))
    fired = [life[1:] for life in lives(found, "CodecDrift") if life[1] is not None]
    assert fired == by_the_replay(made(scenario))["CodecDrift"]
    assert len(fired) == 1
    (rule,) = [rule for rule in found["rules"] if rule["alert"] == "CodecDrift"]
    (alert,) = rule["alerts"]
    assert alert["labels"] == {
        "job": "omniwatch",
        "instance": "127.0.0.1:9842",
        "device": "orin",
        "severity": "page",
        "stream": "0",
    }
    assert alert["episodes"][-1]["worst"] == pytest.approx(180, abs=30)


def test_a_listener_who_left_takes_the_alert_along_at_the_next_evaluation(tmp_path):
    speech = [
        ev.Audio(t=T0 + 1 + k * 0.08, stream="a", turn=1, pts_ms=80.0 * k + 90, video_pts_ms=80.0 * k)
        for k in range(500)
    ]
    gone = ev.StreamEnd(t=T0 + 41.2, stream="a", reason="left")
    after = ev.StreamStart(t=T0 + 60, stream="b")
    found = backtested(record(tmp_path / "events.jsonl", [*speech, gone, after]))
    assert lives(found, "CodecDrift") == [(5, 20, 45)]


def test_prometheus_own_rule_engine_agrees_on_every_rule_at_every_evaluation(late, tmp_path):
    """The same scrapes as promtool's input series: every alert it has, and no other, at each evaluation."""
    found = backtested(late)
    bundle = site.rendered(Settings(), tmp_path / "bundle")
    moments = Moments(Recording(str(late)), Settings().sources[0])
    pages = [
        dict(line.rsplit(" ", 2)[:2] for line in text.splitlines())
        for _, text in Scrapes(moments, Settings(), bundle.targets)
    ]
    start = T0 - 5
    series = []
    for name in dict.fromkeys(name for page in pages for name in page):
        values = [page.get(name) for page in pages]
        words = [
            value or ("stale" if number and values[number - 1] is not None else "_")
            for number, value in enumerate(values)
        ]
        series.append({"series": name, "values": " ".join(words)})
    expected = [
        {
            "expr": "ALERTS",
            "eval_time": f"{at - start}s",
            "exp_samples": [
                {"labels": f"ALERTS{{{_pairs(labels)}}}", "value": 1} for labels in alerts_at(found, at)
            ],
        }
        for at in range(start, start + len(pages), 5)
    ]
    cases = {
        "rule_files": list(map(str, bundle.rule_files)),
        "evaluation_interval": "5s",
        "tests": [{"interval": "1s", "input_series": series, "promql_expr_test": expected}],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(cases, width=10**6))
    done = promtool("test", "rules", "test.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert sum(len(case["exp_samples"]) for case in expected) > len(expected) + 5


def _pairs(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{text}"' for name, text in labels.items())


def alerts_at(found: dict[str, Any], at: float) -> list[dict[str, str]]:
    return [
        {**alert["labels"], "alertname": rule["alert"], "alertstate": "firing" if fires else "pending"}
        for rule in found["rules"]
        for alert in rule["alerts"]
        for one in alert["episodes"]
        if one["pending_t"] <= at and (one["resolved_t"] is None or at < one["resolved_t"])
        for fires in [one["firing_t"] is not None and at >= one["firing_t"]]
    ]


def test_two_settings_are_compared(drifting, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text("alerts: {drift_page_ms: 90, drift_for_s: 5}\n")
    found = backtested(drifting, "--against", other, "--plot", tmp_path / "both.svg")
    first, second = lives(found, "CodecDrift"), lives(found["against"], "CodecDrift")
    (drift,) = [one for one in found["differences"]["firings"] if one["alert"] == "CodecDrift"]
    assert drift["later_s"] == second[-1][1] - first[-1][1] > 0
    assert found["against"]["rule_set"] == str(other)
    assert (tmp_path / "both.svg").read_bytes().startswith(b"<?xml")


RECORDED = """
groups:
  - name: coarse
    interval: 15s
    rules:
      - {record: "device:drift_ms:max", expr: "max by (device) (abs(omni_codec_drift_ms))"}
      - {record: "device:drift_s:max", expr: "device:drift_ms:max / 1000"}
  - name: fine
    rules:
      - {alert: Recorded, expr: "device:drift_s:max > 0.06", labels: {severity: page}}
      - {alert: Plain, expr: "max by (device) (abs(omni_codec_drift_ms)) > 60"}
      - {alert: Never, expr: "absent(up)"}
      - {alert: Missing, expr: "absent(vllm:num_requests_running)"}
      - {alert: Doubled, expr: "label_replace({__name__=~'omni_audio_frames_(lost|late)_total'}, 'a', 'b', '', '')"}
"""


def test_rules_of_a_file_with_recording_rules_at_their_own_pace(drifting, tmp_path):
    rules = tmp_path / "own.yaml"
    rules.write_text(RECORDED)
    found = backtested(drifting, "--rules", rules)
    assert outcomes(found) == {
        "Recorded": "fired",
        "Plain": "fired",
        "Never": "assumed",
        "Missing": "missing",
        "Doubled": "refused",
    }
    plain = lives(found, "Plain")
    over = [at for at in range(0, 100, 5) if any(p <= at < r for p, _, r in plain)]
    seen = [at for at in range(0, 100, 5) if at - (T0 + at) % 15 in over]
    recorded = [at for at in range(0, 100, 5) if any(p <= at < r for p, _, r in lives(found, "Recorded"))]
    assert recorded == seen


def test_standard_input_and_a_terminal_that_sees_how_far_it_is(drifting):
    terminal, side = pty.openpty()
    done = subprocess.run(
        [*OMNIWATCH, "backtest", "--config.file=/dev/null", "-"],
        input=drifting.read_bytes(),
        stdout=subprocess.PIPE,
        stderr=side,
        timeout=60,
        check=True,
    )
    os.close(side)
    shown = os.read(terminal, 65536).decode()
    os.close(terminal)
    assert "scraping" in shown
    assert "asking" in shown
    assert '\n  CodecDrift  stream="0"\n' in done.stdout.decode()


def test_whoever_is_told_to_end_leaves_nothing_behind(temporary):
    with subprocess.Popen(
        [*OMNIWATCH, "backtest", "--config.file=/dev/null", "-"], stdin=subprocess.PIPE
    ) as waiting:
        wait_until(lambda: any(temporary.glob("omniwatch-backtest-*/events.jsonl")))
        waiting.send_signal(signal.SIGTERM)
        assert waiting.wait(20) == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("groups: [{name: g, rules: [{alert: A, expr: 'sum('}]}]\n", "could not parse expression"),
        ("groups: 3\n", "unmarshal errors: line 1: cannot unmarshal !!int `3` into "),
    ],
)
def test_rules_that_promtool_refuses_are_said_in_its_words(drifting, tmp_path, text, reason):
    rules = tmp_path / "own.yaml"
    rules.write_text(text)
    code, printed, errors = run(drifting, "--rules", rules)
    assert (code, printed) == (2, "")
    assert errors.startswith(f"Error: {rules}: ")
    assert reason in errors
    assert errors.count("\n") == 1
