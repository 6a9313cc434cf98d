"""Who tells the end of a page: whoever told of the page, and once, though the centre's rules hear of it later."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bundles import changed_settings, promtool, rendered

CENTRE = "https://centre.example.org"
RULES = "deploy/fleet/centre-reached.rules.yaml"
LABELS = 'device="d",instance="orin:9842",job="omniwatch",stream="0"'
PAGE = f'ALERTS{{{LABELS},alertname="CodecDrift",alertstate="firing",severity="page"}}'
CARRIED = f'uplink:alert_firing{{{LABELS},alertname="CodecDrift",severity="page"}}'
ERRORS = f'prometheus_notifications_errors_total{{device="d",alertmanager="{CENTRE}:9093/api/v2/alerts"}}'
RETRIES = 'vmagent_remotewrite_retries_count_total{device="d",job="uplink"}'
UP = 'up{device="d",job="uplink"}'


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    settings = changed_settings(
        "fleet", alertmanagers=[f"{CENTRE}:9093"], remote_write_url=f"{CENTRE}/api/v1/write"
    )
    return rendered(tmp_path, settings)


def count(directory: Path, every_s: float, series: dict[str, str], asked: dict[str, dict[str, int]]) -> None:
    """Hold how many alerts of a name fire at the times `asked` against the rules."""
    content = {
        "rule_files": [RULES],
        "evaluation_interval": "5s",
        "tests": [
            {
                "interval": f"{int(every_s * 1000)}ms",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": f"count({what}) or vector(0)",
                        "eval_time": at,
                        "exp_samples": [{"labels": "{}", "value": found}],
                    }
                    for what, times in asked.items()
                    for at, found in times.items()
                ],
            }
        ],
    }
    (directory / "here.test.yaml").write_text(yaml.safe_dump(content))
    done = promtool("test", "rules", "here.test.yaml", cwd=directory)
    assert done.returncode == 0, done.stdout + done.stderr


OVER = f'ALERTS{{alertname="PageOver",alertstate="firing",page="CodecDrift",severity="state",{LABELS}}}'
NOTIFICATIONS = 'ALERTS{alertname="CentreReached",alertstate="firing",way="notifications"}'
UPLINK = 'ALERTS{alertname="CentreReached",alertstate="firing",way="uplink"}'


def test_a_page_that_ended_is_said_to_be_over_until_the_centre_has_heard_so(bundle):
    """The page fires from 300 s to 600 s, and again from 660 s to 700 s; the uplink has it for 20 s longer."""
    series = {
        UP: "1x300",
        RETRIES: "0x300",
        PAGE: "_x60 1x59 stale _x11 1x7 stale _x200",
        CARRIED: "_x60 1x63 stale _x7 1x11 stale _x200",
    }
    asked = {
        "290s": 0,
        "400s": 0,
        "600s": 0,
        "610s": 1,
        "650s": 1,
        "665s": 0,
        "715s": 1,
        "900s": 1,
        "975s": 0,
    }
    count(bundle, 5, series, {OVER: asked})


def test_while_the_uplink_has_trouble_the_centre_is_taken_not_to_have_heard_so(bundle):
    """The page ends at 600 s, at which the uplink fails, until 1,800 s; its trouble is seen for two minutes, and remembered."""
    series = {
        UP: "1x700",
        RETRIES: "0x119 1+1x240 241x300",
        PAGE: "_x60 1x59 stale _x600",
        CARRIED: "_x60 1x63 stale _x600",
    }
    count(bundle, 5, series, {OVER: {"610s": 1, "1000s": 1, "1900s": 1, "2100s": 1, "2250s": 0}})


def test_the_centre_is_reached_again_only_when_the_end_of_what_was_told_here_has_been_told_here(bundle):
    """Both ways fail until 400 s; a page fires from 300 s to 700 s."""
    broken = "0+1x80 80x200"
    series = {UP: "1x280", ERRORS: broken, RETRIES: broken, PAGE: "_x60 1x79 stale _x100"}
    asked = {"390s": 0, "650s": 0, "720s": 0, "810s": 0, "830s": 1}
    count(bundle, 5, series, {NOTIFICATIONS: asked, UPLINK: asked})


def test_what_the_centre_tells_already_it_goes_on_telling_when_the_other_way_opens(bundle):
    """The uplink is open all the time; notifications fail until 400 s, and a page fires from 300 s on."""
    series = {UP: "1x280", ERRORS: "0+1x80 80x200", RETRIES: "0x280", PAGE: "_x60 1x200"}
    count(bundle, 5, series, {UPLINK: {"390s": 1, "650s": 1}, NOTIFICATIONS: {"390s": 0, "650s": 1}})


def test_a_page_that_is_over_silences_itself_at_the_centre_and_no_other(bundle):
    pages = {
        rule["alert"]
        for path in bundle.glob("alerts/*.rules.yaml")
        if path.name != "fleet.rules.yaml"
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
        if rule.get("labels", {}).get("severity") == "page"
    }
    config = yaml.safe_load((bundle / "deploy/fleet/centre-alertmanager.yml").read_text())
    silences = [rule for rule in config["inhibit_rules"] if "PageOver" in rule["source_matchers"][0]]
    assert {rule["target_matchers"][0] for rule in silences} == {f'alertname="{name}"' for name in pages}
    for rule in silences:
        (target,) = rule["target_matchers"]
        assert rule["source_matchers"] == ['alertname="PageOver"', target.replace("alertname", "page")]
        assert rule["equal"][:2] == ["site", "device"]
        assert "stream" in rule["equal"]


def test_who_says_that_a_page_is_over_has_both_ways(tmp_path):
    for ways in ({"alertmanagers": [f"{CENTRE}:9093"]}, {"remote_write_url": f"{CENTRE}/api/v1/write"}):
        rules = (rendered(tmp_path, changed_settings("fleet", **ways)) / RULES).read_text()
        assert "PageOver" not in rules
