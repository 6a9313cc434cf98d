"""Whatever omniwatch.yaml is accepted renders, is valid for the programs that read it, and says what was set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis

from helpers.bundles import changed_settings, promtool, rendered
from helpers.hostile_settings import consume, hostile
from omniwatch.bundle import check
from omniwatch.settings import Settings, SettingsError, parse

pytestmark = pytest.mark.programs

HOSTILE = hypothesis(
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
"""Not made smaller when one fails: it takes minutes, and the message names the setting."""


@hypothesis(HOSTILE, max_examples=5)
@given(hostile())
def test_whatever_is_accepted_renders_and_says_what_was_set(found: tuple[Settings, int, int]) -> None:
    consume(found[0])


@hypothesis(HOSTILE, max_examples=1, derandomize=True)
@given(hostile())
def test_what_is_rendered_of_it_is_taken_by_promtool_and_amtool(found: tuple[Settings, int, int]) -> None:
    results = check.check_files(consume(found[0]), unit_tests=False, whole=False)
    assert [str(result) for result in results if result.status is check.Status.FAILED] == []


@pytest.mark.parametrize("device", ["it's-orin", "吉野家𠮷", "#1:{a}\U000e0001\ufeff"])
def test_a_device_may_have_any_name_that_is_a_text(tmp_path: Path, device: str) -> None:
    found = changed_settings("site", device=device)
    consume(found)
    rendered(tmp_path, found)
    for name in ("uplink", "sidecar", "server", "monitoring"):
        path = tmp_path / "alerts" / f"{name}.test.yaml"
        content = yaml.safe_load(path.read_text())
        # Those in which a rule names the device itself: all of them take promtool a minute.
        content["tests"] = [
            test for test in content["tests"] if device in json.dumps(test, ensure_ascii=False)
        ]
        assert content["tests"]
        path.write_text(yaml.safe_dump(content))
        done = promtool("test", "rules", path.name, cwd=path.parent)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_burn_so_small_that_it_has_an_exponent_is_a_number_in_the_dashboards() -> None:
    consume(changed_settings("objective", page_burn=0.001, in_time_share=0.95))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            r'site: {device: "\ud842"}',
            "line 1: found invalid Unicode character escape code",
        ),
        (
            r'fleet: {token_file: "/a\nExecStart=/bin/sh"}',
            "fleet.token_file: expected text: absolute path, or empty",
        ),
        (
            r'notify: {robots: [{kind: wecom, url_file: "/a\r"}]}',
            "notify.robots[0].url_file: expected text without control characters and {{, got the character U+000D at position 2",
        ),
        (
            'grafana: {folder: "{{ .x }}"}',
            'grafana.folder: expected text without control characters and {{, got "{{" at position 0',
        ),
        (r'site: {runbook_base_url: "http://h\nExecStart=/bin/sh"}', "site.runbook_base_url: expected text"),
        (r'site: {exporter: "h:1\n"}', "site.exporter: expected text"),
        ("site: {exporter: http://h:1}", "site.exporter: expected text"),
        ("site: {exporter: 'h:65536'}", "site.exporter: expected text"),
        ("site: {device: $HOME}", "site.device: expected text"),
        ("fleet: {token_file: token}", "fleet.token_file: expected text"),
        ("frames: {frame_ms: .inf}", "frames.frame_ms: expected a number >= 1, <= 1000"),
        ("resume: {heartbeat_s: 1e9}", "resume.heartbeat_s: expected a number >= 0.01, <= 60"),
        ("resume: {grace_s: 1e9}", "resume.grace_s: expected a number > 0, <= 3600"),
        (
            # Of so many devices each has series in the rules' unit tests: they would take all memory.
            "fleet: {release_devices_min: 2147483648}",
            "fleet.release_devices_min: expected a whole number >= 1, <= 1000",
        ),
        ("fleet: {site_silent_min: 5000}", "fleet.site_silent_min: expected a whole number >= 1, <= 100"),
        (
            "fleet: {site_silent_share: 0.0001}",
            "fleet.site_silent_share: expected a number >= 0.01, <= 0.9999",
        ),
        (
            "alerts: {drift_for_s: 9000000000}",
            "alerts.drift_for_s: expected a whole number >= 0, <= 315360000",
        ),
    ],
)
def test_what_no_consumer_could_take_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(text)
    assert str(caught.value).startswith(f"omniwatch.yaml: {message}")
    assert "\n" not in str(caught.value)


def test_a_command_with_braces_is_shown_as_it_was_set(tmp_path: Path) -> None:
    access = 'ssh -o "ProxyCommand={{ x }} {{{y}}}" orin'
    rendered(tmp_path, changed_settings("site", access=access))
    alerts = tmp_path / "alerts"
    # promtool evaluates the rules' templates, and the unit tests expect the command itself.
    done = promtool("test", "rules", "streaming.test.yaml", cwd=alerts)
    assert done.returncode == 0, done.stdout + done.stderr
    tests = yaml.safe_load((alerts / "streaming.test.yaml").read_text())["tests"]
    fired = [alert for test in tests for one in test["alert_rule_test"] for alert in one["exp_alerts"]]
    assert fired
    assert {alert["exp_annotations"]["access"] for alert in fired} == {access}
