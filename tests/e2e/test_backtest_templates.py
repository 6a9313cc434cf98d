"""Rules with templates for labels, through the real promtool and Prometheus."""

from __future__ import annotations

from helpers.backtest_command import T0, backtested, outcomes, record, run
from omniwatch.desk.simulation import SCENARIOS, events

TEMPLATED = """
groups:
  - name: templated
    rules:
      - {alert: Steps, expr: "count_over_time(vector(1)[1m:]) >= 12"}
      - alert: Named
        expr: omni_codec_drift_ms > 0
        labels: {stream: "s{{ $labels.stream }}"}
      - alert: Apart
        expr: '{__name__=~"omni_audio_frames_(lost|late)_total"} >= 0'
        labels: {kind: "{{ $labels.__name__ }}"}
      - alert: Graded
        expr: omni_codec_drift_ms > 0
        labels: {severity: "{{ if gt $value 50.0 }}page{{ else }}ticket{{ end }}"}
"""


def test_labels_that_are_templates_and_subqueries_without_a_step_are_as_the_site_has_them(tmp_path):
    scenario = SCENARIOS["progressive-drift"]
    drifting = record(tmp_path / "drifting.jsonl", events(scenario, 1, T0, 70.0))
    rules = tmp_path / "own.yaml"
    rules.write_text(TEMPLATED)
    found = backtested(drifting, "--rules", rules)
    assert outcomes(found) == dict.fromkeys(("Steps", "Named", "Apart", "Graded"), "fired")
    told = {rule["alert"]: rule for rule in found["rules"]}
    assert [one["labels"]["stream"] for one in told["Named"]["alerts"]] == ["s0"]
    assert {one["labels"]["kind"] for one in told["Apart"]["alerts"]} == {
        "omni_audio_frames_late_total",
        "omni_audio_frames_lost_total",
    }
    assert told["Graded"]["severity"] == "templated"
    printed = run(drifting, "--rules", rules)[1]
    assert '\ntemplated:\n  Graded  stream="0"\n' in printed
    assert '  Named  stream="s0"\n' in printed
    assert "{{" not in printed
