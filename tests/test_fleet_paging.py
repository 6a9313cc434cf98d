"""Who tells of a device's page: the device, or the centre where the device's pager is not reached and the uplink is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from bundles import hold, rendered, sample
from omniwatch.settings import Settings, parse

RULES = ["deploy/fleet/paging.rules.yaml"]
CONFIG = "deploy/alertmanager/alertmanager.yml"
FLEET = "fleet: {remote_write_url: 'https://centre.example.org/api/v1/write'}"
ROBOT = "notify: {robots: [{kind: feishu, url_file: /robot}]}"
ROBOTS = ROBOT.replace("[{", "[{kind: dingtalk, url_file: /a, severities: [ticket]}, {", 1)
TICKETS = """
receivers: {page: {pagerduty_routing_key_file: /key}}
notify: {robots: [{kind: feishu, url_file: /robot, severities: [ticket]}]}
"""
PAGER = "receivers: {page_webhook_url: 'https://pager.example/', ticket_webhook_url: ''}"
VMAGENT = ("vmagent_remotewrite_errors_total", "vmagent_remotewrite_retries_count_total")
AGENT = ("prometheus_remote_storage_samples_retried_total", "prometheus_remote_storage_samples_failed_total")
GROWS, STANDS = "0+1x400", "7x400"
OF_THE_DEVICE = {'up{device="d",job="uplink"}': "1x400"}
WELL = {'up{device="d",job="alertmanager"}': "1x400"}
OPEN = OF_THE_DEVICE | WELL | {f'{name}{{device="d",job="uplink"}}': STANDS for name in VMAGENT}
RETRIES = f'{VMAGENT[1]}{{device="d",job="uplink"}}'
FAILED = (
    'alertmanager_notification_requests_failed_total{device="d",job="alertmanager",integration="webhook"}'
)
SENT = FAILED.replace("failed_", "")
SLACK = FAILED.replace("webhook", "slack")
WAITING = 'omniwatch_notify_waiting{device="d",job="notify",robot="feishu-0"}'
GIVEN_UP = 'omniwatch_notify_given_up_total{device="d",job="notify",robot="feishu-0"}'
OF_THE_PAGE = (
    'alertname="CodecDrift",severity="page",device="d",instance="orin:9842",job="omniwatch",stream="0"'
)
PAGE = f'ALERTS{{{OF_THE_PAGE},alertstate="firing"}}'
ANOTHER = PAGE.replace('stream="0"', 'stream="1"')


def at(start_s: int, end_s: int) -> str:
    """A page that fires from one time to another."""
    return f"_x{start_s // 5} 1x{(end_s - start_s) // 5 - 1} stale _x400"


def pager(*closed: tuple[int, int]) -> str:
    """What fails at a pager that is closed from one time to another: a request each five seconds."""
    values, so_far, now = [], 0, 0
    for start_s, end_s in closed:
        steps = (end_s - start_s) // 5
        values += [f"{so_far}x{(start_s - now) // 5}", f"{so_far + 1}+1x{steps - 2}"]
        so_far, now = so_far + steps - 1, end_s
    return " ".join([*values, f"{so_far}x400"])


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rendered(tmp_path_factory.mktemp("bundle"), parse(f"{FLEET}\n{PAGER}"))


def taken(
    series: dict[str, str], bundle: Path, asked: dict[str, bool], stream: str = "0", every_s: int = 5
) -> None:
    """Hold against the rules whether the page is the centre's at these times."""
    cases = [
        sample(f'count(page:taken{{stream="{stream}"}}) or vector(0)', when, ("{}", int(is_taken)))
        for when, is_taken in asked.items()
    ]
    hold(bundle, RULES, 5, series, evaluation_s=every_s, promql_expr_test=cases)


@pytest.mark.parametrize(
    ("uplink", "is_reached"),
    [
        (dict.fromkeys(VMAGENT, STANDS), True),
        ({VMAGENT[0]: STANDS, VMAGENT[1]: GROWS}, False),
        ({VMAGENT[0]: GROWS, VMAGENT[1]: STANDS}, False),
        (dict.fromkeys(AGENT, STANDS), True),
        ({AGENT[0]: GROWS, AGENT[1]: STANDS}, False),
        ({AGENT[0]: STANDS, AGENT[1]: GROWS}, False),
    ],
    ids=[
        *("vmagent", "vmagent is refused", "vmagent cannot connect"),
        *("agent", "agent is put off", "agent is refused"),
    ],
)
def test_a_centre_that_refuses_what_comes_is_not_reached(bundle, uplink, is_reached):
    series = OF_THE_DEVICE | {f'{name}{{device="d",job="uplink"}}': how for name, how in uplink.items()}
    found = [sample("count(centre:reached) or vector(0)", "10m", ("{}", int(is_reached)))]
    hold(bundle, RULES, 5, series, promql_expr_test=found)


@pytest.mark.parametrize(
    ("receivers", "series", "asked"),
    [
        (PAGER, {FAILED: GROWS}, {"4m": True}),
        (PAGER, {FAILED: STANDS}, {"4m": False}),
        (PAGER, {FAILED: "0x36 1x160"}, {"3m": False, "4m": False, "5m": False}),
        (PAGER, {FAILED: pager((300, 500))}, {"400s": True, "1100s": True, "1140s": False}),
        (PAGER, {FAILED: pager((300, 500)), SENT: pager((300, 505))}, {"480s": True, "520s": False}),
        (PAGER, {FAILED: STANDS, SLACK: GROWS}, {"4m": False}),
        (PAGER, {'up{device="d",job="alertmanager"}': "0x200"}, {"4m": True}),
        (ROBOT, {WAITING: "2x200"}, {"4m": True}),
        (ROBOT, {GIVEN_UP: "0x20 1x800"}, {"90s": False, "4m": True, "50m": True, "75m": False}),
        (ROBOT, {WAITING: "0x59 1x40 " + "0x106 1x0 " * 10}, {"400s": True, "1200s": False, "3600s": False}),
        (ROBOTS, {WAITING.replace("feishu-0", "feishu-1"): "2x200"}, {"4m": True}),
        (ROBOTS, {WAITING.replace("feishu-0", "dingtalk-0"): "2x200"}, {"4m": False}),
        (ROBOT, {'up{device="d",job="notify"}': "0x200"}, {"4m": True}),
        (
            TICKETS,
            {WAITING: "2x200", GIVEN_UP: "0x20 1x800", 'up{device="d",job="notify"}': "0x200"},
            {"4m": False},
        ),
    ],
    ids=[
        *("fails", "arrives", "fails once", "failed a while ago", "failed and arrives", "a ticket's channel"),
        *("no alertmanager", "the bridge waits", "the bridge gives up", "the bridge delivers"),
        *("the robot for pages waits", "the one for tickets waits", "no bridge", "a bridge for tickets"),
    ],
)
def test_a_pager_that_is_not_reached_for_more_than_a_minute_is_known(tmp_path, receivers, series, asked):
    rendered(tmp_path, parse(f"{FLEET}\n{receivers}"))
    unreached = {"exp_labels": {"device": "d", "severity": "state"}}
    cases = [
        {"eval_time": when, "alertname": "PagerUnreached", "exp_alerts": [unreached] if fires else []}
        for when, fires in asked.items()
    ]
    hold(tmp_path, RULES, 5, series, alert_rule_test=cases)


def test_a_bridge_that_ends_has_told_nothing(tmp_path):
    rendered(tmp_path, parse(f"{FLEET}\n{ROBOT}"))
    bridge = {WAITING: "_x60 1x8 stale _x59 1x300", 'up{device="d",job="notify"}': "1x67 0x59 1x300"}
    taken(OPEN | bridge | {PAGE: at(300, 1800)}, tmp_path, {"400s": True, "900s": True, "1790s": True})


def test_a_page_that_comes_and_goes_is_taken_although_nothing_is_tried_meanwhile(bundle):
    comes = [(start_s, start_s + 60) for start_s in range(300, 1500, 120)]
    series = OPEN | {FAILED: pager(*comes), PAGE: "_x60" + " 1x11 stale _x11" * len(comes)}
    taken(series, bundle, {"355s": False, "425s": True, "445s": True, "1390s": True})


def test_one_attempt_that_fails_is_not_taken_for_more_where_it_is_seldom_looked(tmp_path):
    alerts = "alerts: {scrape_interval_s: 30, evaluation_interval_s: 15}"
    rendered(tmp_path, parse(f"{FLEET}\n{alerts}"))
    series = OPEN | {FAILED: "0x10 1x100", PAGE: "_x10 1x50"}
    cases = [
        sample("count(page:taken) or vector(0)", at, ("{}", 0)) for at in ("390s", "420s", "480s", "600s")
    ]
    hold(tmp_path, RULES, 30, series, evaluation_s=15, promql_expr_test=cases)


def test_a_page_that_cannot_be_told_is_the_centres_until_it_is_over(bundle):
    series = OPEN | {FAILED: pager((300, 500)), PAGE: at(300, 1200)}
    taken(series, bundle, {"360s": False, "400s": True, "700s": True, "1190s": True, "1210s": False})


def test_what_was_told_before_the_pager_failed_stays_with_the_device(bundle):
    series = OPEN | {FAILED: pager((600, 1500)), PAGE: at(300, 1800), ANOTHER: at(600, 1800)}
    taken(series, bundle, {"700s": False, "1490s": False, "1700s": False})
    taken(series, bundle, {"650s": False, "700s": True, "1790s": True}, stream="1")


def test_a_page_is_not_told_a_second_time_when_the_pager_fails_again(bundle):
    """At 360 s it is tried for the last time, and arrives."""
    closed = pager((300, 360), (600, 1500))
    series = OPEN | {FAILED: closed, SENT: closed.replace("11x48", "12x48"), PAGE: at(300, 1800)}
    assert series[SENT] != series[FAILED]
    taken(series, bundle, {"400s": False, "700s": False, "1400s": False})


def test_the_centre_takes_a_page_as_soon_as_the_uplink_is_open_however_long_that_was(bundle):
    series = OPEN | {RETRIES: "0x50 1+1x100 101x300", FAILED: pager((300, 1800)), PAGE: at(300, 1800)}
    taken(series, bundle, {"400s": False, "750s": False, "900s": True, "1790s": True})


def test_one_upload_that_is_tried_again_later_changes_nothing(bundle):
    series = OPEN | {RETRIES: "0x180 1x300", FAILED: pager((300, 1800)), PAGE: at(300, 1800)}
    taken(series, bundle, dict.fromkeys(("600s", "910s", "1000s", "1100s", "1300s"), True))


def test_an_uplink_that_fails_just_then_gives_the_page_back_until_it_is_well(bundle):
    """The centre may not have heard of it. While it has the page, Alertmanager has nothing to send that could fail."""
    series = OPEN | {RETRIES: "0x91 1x400", FAILED: pager((300, 400), (470, 1800)), PAGE: at(300, 1800)}
    taken(series, bundle, {"400s": True, "460s": False, "540s": False, "600s": True, "1700s": True})


@pytest.mark.parametrize(
    "down", [(340, 360), (600, 640)], ids=["before it is taken", "while the uplink is closed"]
)
def test_an_alertmanager_that_starts_anew_has_told_nothing(bundle, down):
    start_s, end_s = down
    fails = pager((300, start_s), (end_s + 65, 1800))
    up = f"1x{start_s // 5 - 1} 0x{(end_s - start_s) // 5 - 1} 1x400"
    series = OPEN | {'up{device="d",job="alertmanager"}': up, FAILED: fails, PAGE: at(300, 1800)}
    if start_s == 600:
        series[RETRIES] = "0x50 1+1x100 101x300"
    taken(series, bundle, {"1100s": True, "1790s": True})


def test_a_prometheus_that_was_away_takes_nothing_for_told(bundle):
    """From 330 s to 500 s there are no samples at all."""
    gone = "_x34"
    series = {
        name: f"{values.split('x')[0]}x65 {gone} {values.split('x')[0]}x300" for name, values in OPEN.items()
    }
    series |= {FAILED: f"0x60 1+1x5 {gone} 8+1x300", PAGE: f"_x60 1x5 {gone} 1x200 stale"}
    taken(series, bundle, {"800s": True})


def test_a_page_that_another_one_silenced_has_not_been_told(bundle):
    """The other is told, and explains the page; the pager fails, and then the other is over."""
    other = PAGE.replace("CodecDrift", "ModelServerDown").replace(',stream="0"', "")
    series = OPEN | {other: at(300, 900), PAGE: at(305, 1800), FAILED: pager((900, 1800))}
    taken(series, bundle, {"890s": False, "1000s": True})


@pytest.mark.parametrize(("scrape_s", "every_s"), [(15, 60), (30, 30), (30, 60)])
def test_pages_that_are_looked_at_seldom_are_taken_all_the_same(tmp_path, scrape_s, every_s):
    alerts = f"alerts: {{scrape_interval_s: {scrape_s}, evaluation_interval_s: {every_s}}}"
    rendered(tmp_path, parse(f"{FLEET}\n{PAGER}\n{alerts}"))
    series = OPEN | {FAILED: pager((300, 1800)), PAGE: at(300, 1800)}
    taken(series, tmp_path, {"290s": False, "600s": True, "1740s": True}, every_s=every_s)


@pytest.mark.parametrize(
    "ticket", ["", ", ticket: {email_to: a@b.example}, mail: {smarthost: 'm.example:587'}"]
)
def test_the_pages_of_a_device_with_nobody_to_tell_are_the_centres_at_once(tmp_path, ticket):
    rendered(tmp_path, parse(f"{FLEET}\nreceivers: {{page_webhook_url: ''{ticket}}}"))
    taken({PAGE: at(300, 600)}, tmp_path, {"290s": False, "305s": True, "590s": True, "610s": False})


def test_what_the_centre_tells_is_left_alone_here_and_nothing_else(bundle):
    config = yaml.safe_load((bundle / CONFIG).read_text())
    silences = [rule for rule in config["inhibit_rules"] if "PageTaken" in rule["source_matchers"][0]]
    rules = yaml.safe_load((bundle / "deploy/fleet/centre-pages.rules.yaml").read_text())["groups"]
    pages = {rule["alert"] for group in rules for rule in group["rules"] if "alert" in rule}
    assert {rule["target_matchers"][0] for rule in silences} == {f'alertname="{name}"' for name in pages}
    for rule in silences:
        (target,) = rule["target_matchers"]
        assert rule["source_matchers"] == ['alertname="PageTaken"', target.replace("alertname", "page")]
        assert rule["equal"][0] == "device"
        assert {"stream", "source", "instance"} <= set(rule["equal"])
    assert "PageTaken" not in (bundle / "deploy/fleet/centre-alertmanager.yml").read_text()


def test_the_alert_that_silences_has_the_labels_of_the_page(bundle):
    series = OPEN | {FAILED: pager((300, 900)), PAGE: at(300, 900)}
    labels: dict[str, Any] = dict(re.findall(r'(\w+)="([^"]*)"', OF_THE_PAGE)) | {"severity": "state"}
    labels["page"] = labels.pop("alertname")
    cases = [{"eval_time": "600s", "alertname": "PageTaken", "exp_alerts": [{"exp_labels": labels}]}]
    hold(bundle, RULES, 5, series, alert_rule_test=cases)


def test_a_device_that_pages_itself_sees_whether_its_pager_is_reached(tmp_path):
    robot = {"kind": "feishu", "url_file": "/etc/omniwatch/secrets/feishu"}
    fleet = {"remote_write_url": "https://centre.example.org/api/v1/write"}
    rendered(tmp_path, msgspec.convert({"fleet": fleet, "notify": {"robots": [robot]}}, Settings))
    prometheus = yaml.safe_load((tmp_path / "deploy/prometheus/prometheus.yml").read_text())
    seen = {job["job_name"]: job["static_configs"][0]["targets"] for job in prometheus["scrape_configs"]}
    assert (seen["alertmanager"], seen["notify"]) == (["127.0.0.1:9093"], ["127.0.0.1:9095"])
    assert "../fleet/paging.rules.yaml" in prometheus["rule_files"]
