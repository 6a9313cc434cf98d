"""The rules beyond the contract: their unit tests pass under several settings, and notice what is written wrong."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from helpers.bundles import (
    COARSE,
    FINE,
    SUBJECTS,
    TIGHT,
    failing,
    promtool,
    rendered,
    replaced,
    unit_tests,
)
from omniwatch.settings import Settings, SettingsError, alerts, parse
from omniwatch.settings.fleet import Fleet
from omniwatch.settings.histograms import RTT_EDGES

ODD = msgspec.structs.replace(
    FINE,
    early=alerts.Early(
        eta_ticket_s=333.3, eta_ticket_share=0.5, lead_ms=41.7, ahead_for_s=7, silent_s=3.3, loss_runs=7, corrupt=9
    ),
    objective=alerts.Objective(
        in_time_share=0.99, answers_min=3, page_burn=10, page_window_s=601, page_short_s=61, ticket_burn=2.5
    ),
    device=alerts.DeviceAlerts(failed_for_s=11, restarts=2, restarts_window_s=125),
    model_server=alerts.ModelServer(
        down_for_s=7, load_s=100, stopped_for_s=61, queue_mean_s=1.5, kv_cache_share=0.777, slow_share=0.33, underrun_min=40, no_audio=4, overloaded_for_s=1
    ),
    sidecar=alerts.SidecarAlerts(down_for_s=61, blind_for_s=7, idle_answers=5, idle_window_s=61, lag_s=2.5, lost=100, invalid=3, invalid_window_s=61, impaired_for_s=31),
    monitoring=alerts.Monitoring(failures=7, dropped_share=0.07, window_s=121, lost=5, lost_window_s=601, failing_for_s=125),
    fleet=Fleet(remote_write_url="https://centre.example/api/v1/write", alertmanager_urls=["https://centre.example"]),
    resumption=alerts.Resumption(
        success_share=0.9, resumes_min=1, extra_mean_ms=63.5, window_s=121
    ),
)  # fmt: skip
OTHER_SETTINGS = {"odd": ODD, "coarse": COARSE, "tight": TIGHT}
"""tests/bundle/test_check.py runs the unit tests of what is shipped, the defaults."""


@pytest.mark.parametrize("settings", OTHER_SETTINGS.values(), ids=OTHER_SETTINGS)
def test_promtool_finds_nothing_and_every_unit_test_passes(tmp_path: Path, settings: Settings) -> None:
    rendered(tmp_path, settings)
    for subject in SUBJECTS:
        rules = f"alerts/{subject}.rules.yaml"
        for done in (
            promtool("check", "rules", "--lint=all", "--lint-fatal", rules, cwd=tmp_path),
            unit_tests(tmp_path, subject),
        ):
            assert done.returncode == 0, done.stdout + done.stderr


def test_the_red_line_is_an_edge_of_the_histogram(tmp_path):
    assert 'le="0.75"' in (rendered(tmp_path) / "alerts/objectives.rules.yaml").read_text()
    for edge in RTT_EDGES:
        assert parse(f"alerts: {{red_line_ms: {edge * 1000:g}}}").alerts.red_line_ms == edge * 1000
    with pytest.raises(
        SettingsError, match=r"alerts\.red_line_ms: expected an edge of omni_token_rtt_seconds"
    ):
        parse("alerts: {red_line_ms: 740}")


def test_a_window_with_too_few_samples_is_refused_wherever_it_is():
    message = "early.loss_window_s: expected a whole number >= 40, four scrapes and evaluations, got 39"
    with pytest.raises(SettingsError, match=f"^omniwatch.yaml: {message}$"):
        parse("early: {loss_window_s: 39}\nalerts: {scrape_interval_s: 10}")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"prometheus|alertmanager|notify"', '"prometheus|alertmanager"'),
        ("max by (device) (increase(prometheus_notifications_sent", "sum by (device) (increase(prometheus_notifications_sent"),
        ("unless on (device) device:model_server_last_up:timestamp_seconds", ""),
        ('{state=~"inactive|deactivating"}', ""),
        ("or alertmanager_config_last_reload_successful == 0", ""),
        ('absent_over_time(up{job="prometheus"}[5m])', 'absent_over_time(up{job="prometheus"}[4m])'),
    ],
)  # fmt: skip
def test_the_unit_tests_notice_a_cause_that_is_written_wrong(tmp_path, old, new):
    replaced(rendered(tmp_path) / "alerts/monitoring.rules.yaml", old, new)
    assert any(done.returncode == 1 for done in failing(tmp_path, "monitoring"))


def test_a_wait_that_a_restart_would_fill_is_refused():
    with pytest.raises(
        SettingsError, match=r"monitoring\.failing_for_s: expected a whole number >= 300, window_s, got 299"
    ):
        parse("monitoring: {failing_for_s: 299}")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("> 0.2\n", ">= 0.2\n"),
        (">= 0.5\n", "> 0.5\n"),
        (">= 3\n", "> 3\n"),
        ("- ignoring(le)", "+ ignoring(le)"),
        ("round(increase", "(delta"),
        ("humanizePercentage", "humanize"),
        ("device=%q}[5m]", "device=%q}[6m]"),
        ('or max without (cause) (max_over_time(omniwatch:late_answers:ratio{cause="rare"}[30m]))', ""),
        ("max without (cause) (", "("),
        ('cause=\\"fast\\"', 'cause=\\"long\\"'),
        ("labels: {cause: rare}", "labels: {cause: long}"),
    ],
)
def test_the_unit_tests_notice_a_form_that_is_written_wrong(tmp_path, old, new):
    replaced(rendered(tmp_path) / "alerts/objectives.rules.yaml", old, new)
    assert any(done.returncode == 1 for done in failing(tmp_path, "objectives"))
