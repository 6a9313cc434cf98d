"""The centre's rules where the usual evaluation is not enough: it was away, it refuses, a device has moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from bundles import changed_settings, promtool, rendered
from omniwatch.settings import Settings

CENTRE = "https://centre.example.org:9093"
WHO = 'site="{site}",device="{device}",model="omni",release="1"'
PAGE = 'alertname="CodecDrift",severity="page",instance="orin:9842",job="omniwatch",stream="0"'


def judged(
    directory: Path, rules: list[str], every_s: int, series: dict[str, str], **asked: Any
) -> tuple[int, str]:
    """Run one unit test over these rules of a bundle, and return promtool's exit code and words."""
    test = {
        "interval": f"{every_s}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        **asked,
    }
    content = {
        "rule_files": rules,
        "evaluation_interval": f"{every_s}s",
        "group_eval_order": ["omni_fleet_memory", "omni_fleet", "omni_device_pages"],
        "tests": [test],
    }
    (directory / "here.test.yaml").write_text(yaml.safe_dump(content))
    done = promtool("test", "rules", "here.test.yaml", cwd=directory)
    return done.returncode, done.stdout + done.stderr


def sample(expression: str, at: str, *found: tuple[str, float]) -> dict[str, Any]:
    samples = [{"labels": labels, "value": value} for labels, value in found]
    return {"expr": expression, "eval_time": at, "exp_samples": samples}


VMAGENT = ("vmagent_remotewrite_errors_total", "vmagent_remotewrite_retries_count_total")
AGENT = ("prometheus_remote_storage_samples_retried_total", "prometheus_remote_storage_samples_failed_total")
GROWS, STANDS = "0+1x200", "7x200"
BOTH, DIRECT, UPLINK = {"notifications", "uplink"}, {"notifications"}, {"uplink"}


@pytest.mark.parametrize(
    ("direct", "uplink", "ways"),
    [
        (STANDS, dict.fromkeys(VMAGENT, STANDS), BOTH),
        (GROWS, dict.fromkeys(VMAGENT, STANDS), UPLINK),
        (STANDS, dict.fromkeys(VMAGENT, GROWS), DIRECT),
        (GROWS, {VMAGENT[0]: STANDS, VMAGENT[1]: GROWS}, set()),
        (GROWS, {VMAGENT[0]: GROWS, VMAGENT[1]: STANDS}, set()),
        (GROWS, dict.fromkeys(AGENT, STANDS), UPLINK),
        (GROWS, {AGENT[0]: GROWS, AGENT[1]: STANDS}, set()),
        (GROWS, {AGENT[0]: STANDS, AGENT[1]: GROWS}, set()),
    ],
    ids=[
        *("both", "uplink alone", "notifications alone", "vmagent is refused", "vmagent cannot connect"),
        *("agent: uplink alone", "agent is put off", "agent is refused"),
    ],
)
def test_a_centre_that_refuses_what_comes_is_not_reached(tmp_path, direct, uplink, ways):
    rendered(tmp_path, changed_settings("fleet", alertmanagers=[CENTRE]))
    told = f'prometheus_notifications_errors_total{{device="d",job="prometheus",alertmanager="{CENTRE}/api/v2/alerts"}}'
    series = {told: direct, 'up{device="d",job="uplink"}': "1x200"}
    series |= {f'{name}{{device="d",job="uplink",url="1:secret-url"}}': how for name, how in uplink.items()}
    alerts = [{"exp_labels": {"device": "d", "severity": "state", "way": way}} for way in sorted(ways)]
    asked = [{"eval_time": "10m", "alertname": "CentreReached", "exp_alerts": alerts}]
    code, words = judged(
        tmp_path, ["deploy/fleet/centre-reached.rules.yaml"], 5, series, alert_rule_test=asked
    )
    assert code == 0, words


def test_the_device_leaves_its_tickets_to_the_centre_only_while_its_notifications_arrive(tmp_path):
    rendered(tmp_path, changed_settings("fleet", alertmanagers=[CENTRE]))
    config = yaml.safe_load((tmp_path / "deploy/alertmanager/alertmanager.yml").read_text())
    silences = [
        (rule["source_matchers"], rule["target_matchers"])
        for rule in config["inhibit_rules"]
        if 'alertname="CentreReached"' in rule["source_matchers"]
    ]
    assert silences == [
        (['alertname="CentreReached"'], ['severity="page"']),
        (['alertname="CentreReached"', 'way="notifications"'], ['severity="ticket"']),
    ]


OPEN = {f'{name}{{device="d",job="uplink"}}': STANDS for name in VMAGENT} | {
    'up{device="d",job="uplink"}': "1x200"
}
REFUSED = OPEN | {f'{VMAGENT[1]}{{device="d",job="uplink"}}': GROWS}
FAILED = (
    'alertmanager_notification_requests_failed_total{device="d",job="alertmanager",integration="webhook"}'
)
WAITING = 'omniwatch_notify_waiting{device="d",job="notify",robot="feishu"}'
FIRING = 'ALERTS{device="d",alertname="CodecDrift",alertstate="firing",severity="page"}'


@pytest.mark.parametrize(
    ("series", "at"),
    [
        (OPEN | {FAILED: GROWS}, {"4m": True}),
        (OPEN | {FAILED: STANDS}, {"4m": False}),
        (OPEN | {FAILED: "0x36 1x160"}, {"3m": False, "4m": False, "5m": False}),
        (REFUSED | {FAILED: GROWS}, {"10m": False}),
        (OPEN | {WAITING: "2x200"}, {"4m": True}),
        (OPEN | {'up{device="d",job="alertmanager"}': "0x200"}, {"4m": True}),
        (
            OPEN | {FAILED: "0+1x60 60x140", FIRING: "1x120 stale _x78"},
            {"4m": True, "9m30s": True, "11m": False},
        ),
        (OPEN | {FAILED: "0+1x60 60x140"}, {"4m": True, "7m": False}),
    ],
    ids=[
        *("fails", "arrives", "fails once", "the centre refuses", "the bridge waits", "no alertmanager"),
        *("until the page is over", "no page"),
    ],
)
def test_the_centre_pages_for_a_device_whose_own_pager_is_not_reached(tmp_path, series, at):
    rendered(tmp_path)
    unreached = {"exp_labels": {"device": "d", "severity": "state"}}
    asked = [
        {"eval_time": when, "alertname": "PagerUnreached", "exp_alerts": [unreached] if fires else []}
        for when, fires in at.items()
    ]
    code, words = judged(
        tmp_path, ["deploy/fleet/centre-reached.rules.yaml"], 5, series, alert_rule_test=asked
    )
    assert code == 0, words


def test_a_device_that_pages_itself_sees_whether_its_pager_is_reached(tmp_path):
    robot = {"kind": "feishu", "url_file": "/etc/omniwatch/secrets/feishu"}
    settings = msgspec.convert(
        {"fleet": {"remote_write_url": f"{CENTRE}/api/v1/write"}, "notify": {"robots": [robot]}}, Settings
    )
    rendered(tmp_path, settings)
    prometheus = yaml.safe_load((tmp_path / "deploy/prometheus/prometheus.yml").read_text())
    seen = {job["job_name"]: job["static_configs"][0]["targets"] for job in prometheus["scrape_configs"]}
    assert (seen["alertmanager"], seen["notify"]) == (["127.0.0.1:9093"], ["127.0.0.1:9095"])
    assert "../fleet/centre-reached.rules.yaml" in prometheus["rule_files"]
    config = yaml.safe_load((tmp_path / "deploy/alertmanager/alertmanager.yml").read_text())
    assert config["inhibit_rules"][0] == {
        "source_matchers": ['alertname="PagerUnreached"'],
        "target_matchers": ['severity="page"'],
        "equal": ["device"],
    }


CENTRES = ["alerts/fleet.rules.yaml", "deploy/fleet/centre-pages.rules.yaml"]


def device(name: str, site: str, values: str, page: str | None = None) -> dict[str, str]:
    """Return what comes of a device: its clock, and the times at which its page fired."""
    who = WHO.format(site=site, device=name)
    series = {f"uplink:time_seconds{{{who}}}": values}
    return series | ({f"uplink:alert_firing{{{who},{PAGE}}}": page} if page else {})


def test_the_pages_of_a_device_that_moved_are_those_of_its_new_site(tmp_path):
    rendered(tmp_path)
    before, since = "0+30x60", "_x60 1800+30x40"
    series = device("a", "old", before, before) | device("a", "new", since, since)
    raised = 'count by (device, site) (ALERTS{alertname="CodecDrift",alertstate="firing"})'
    expected = [
        sample(raised, "15m", ('{device="a",site="old"}', 1)),
        sample(raised, "45m", ('{device="a",site="new"}', 1)),
    ]
    code, words = judged(tmp_path, CENTRES, 30, series, promql_expr_test=expected)
    assert code == 0, words


def test_a_silent_device_silences_only_what_is_said_of_its_own_site(tmp_path):
    rendered(tmp_path)
    config = yaml.safe_load((tmp_path / "deploy/fleet/centre-alertmanager.yml").read_text())
    (rule,) = [rule for rule in config["inhibit_rules"] if "DeviceSilent" in rule["source_matchers"][0]]
    assert rule["equal"] == ["site", "device"]


def test_the_first_look_of_a_centre_that_was_away_finds_no_device_silent(tmp_path):
    """It has an evaluation in ten minutes here: each sees the fleet as after an absence, a word of each device and no second one."""
    rendered(tmp_path)
    series = device("a", "n", "0 600")
    expected = [
        sample(
            "time() - device:last_seen:timestamp_seconds",
            "20m",
            (f"{{{WHO.format(site='n', device='a')}}}", 600),
        )
    ]
    alerts = [{"eval_time": at, "alertname": "DeviceSilent", "exp_alerts": []} for at in ("20m", "30m")]
    code, words = judged(
        tmp_path, CENTRES[:1], 600, series, promql_expr_test=expected, alert_rule_test=alerts
    )
    assert code == 0, words


def test_a_device_that_died_while_the_centre_was_away_is_remembered(tmp_path):
    """Evaluations are two hours apart here, more than device:last_seen itself is carried on over."""
    rendered(tmp_path)
    who = WHO.format(site="n", device="a")
    found = sample(
        "device:last_seen:timestamp_seconds", "6h", (f"device:last_seen:timestamp_seconds{{{who}}}", 100)
    )
    series = {f"device:remembered:timestamp_seconds{{{who}}}": "100 _x9"}
    code, words = judged(tmp_path, CENTRES, 7200, series, promql_expr_test=[found])
    assert code == 0, words


def test_what_is_heard_is_remembered_for_as_long_as_it_may_be_silent(tmp_path):
    within_s = Settings().fleet.silent_within_s
    rendered(tmp_path)
    who = WHO.format(site="n", device="a")
    heard = sample(
        "device:remembered:timestamp_seconds", "2h", (f"device:remembered:timestamp_seconds{{{who}}}", 1200)
    )
    forgotten = sample("device:remembered:timestamp_seconds", f"{within_s + 1200}s")
    code, words = judged(
        tmp_path, CENTRES, 600, device("a", "n", "0 600 1200"), promql_expr_test=[heard, forgotten]
    )
    assert code == 0, words
