"""Alertmanager's configuration: every alert has its receiver, secrets stay in files, and the scheme of silences is whole."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from helpers import inhibition
from helpers.bundles import rendered
from helpers.needs import MAIL_PASSWORD_FILE, PAGERDUTY_KEY_FILE
from omniwatch.bundle import catalogue, trial_page
from omniwatch.desk.durations import seconds
from omniwatch.settings import SettingsError, parse

CONFIG = "deploy/alertmanager/alertmanager.yml"
CENTRE = "deploy/fleet/centre-alertmanager.yml"
RECEIVERS = {"page": "page", "ticket": "ticket", "none": "watchdog"}
EVERYTHING = """
receivers:
  page_webhook_url: https://pager.example/hook
  watchdog_webhook_url: https://switch.example/orin
  page:
    pagerduty_routing_key_file: /etc/omniwatch/secrets/pagerduty
    slack_api_url_file: /etc/omniwatch/secrets/slack
    slack_channel: "#speech"
    email_to: on-call@example.org
  ticket: {email_to: team@example.org}
  mail: {smarthost: "mail.example.org:587", username: omniwatch, password_file: /etc/omniwatch/secrets/mail}
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    return rendered(tmp_path_factory.mktemp("bundle"))


def alerts(bundle: Path) -> dict[str, dict[str, str]]:
    """Return the labels of each alert."""
    return {rule["alert"]: rule["labels"] for rule in inhibition.rules(bundle)}


def config(bundle: Path) -> dict:
    return yaml.safe_load((bundle / CONFIG).read_text())


def amtool(bundle: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["amtool", *arguments], cwd=bundle, capture_output=True, text=True, timeout=60, check=False
    )


def test_every_alert_is_routed_by_its_severity_to_one_receiver(bundle):
    for name, labels in alerts(bundle).items():
        receiver = RECEIVERS[labels["severity"]]
        told = [f"alertname={name}", "instance=orin:9842", "device=orin", f"severity={labels['severity']}"]
        done = amtool(
            bundle,
            "config",
            "routes",
            "test",
            f"--config.file={CONFIG}",
            f"--verify.receivers={receiver}",
            *told,
        )
        assert done.returncode == 0, (name, done.stdout + done.stderr)


def routes(bundle: Path, path: str = CONFIG) -> list[dict]:
    return yaml.safe_load((bundle / path).read_text())["route"]["routes"]


def test_pages_are_grouped_by_site_device_and_fault_and_leave_at_once(bundle):
    page = routes(bundle)[0]
    assert page["group_by"] == ["site", "device", "fault", "test"]
    assert (page["group_wait"], page["group_interval"]) == ("0s", "5m")
    assert config(bundle)["route"]["group_by"] == ["alertname", "site", "device", "test"]


def test_how_long_what_joins_a_group_waits_is_a_setting(tmp_path):
    rendered(tmp_path, parse("receivers: {group_interval_s: 60}"))
    assert routes(tmp_path)[0]["group_interval"] == "1m"
    assert routes(tmp_path)[1]["group_interval"] == "5m"


def test_at_the_centre_silent_devices_of_a_site_are_one_message(bundle):
    silent, page, *_ = routes(bundle, CENTRE)
    assert (silent["group_by"], silent["group_wait"]) == (["site"], "30s")
    assert page == routes(bundle)[0]
    assert routes(bundle, CENTRE)[1:] == routes(bundle)


def test_a_watchdog_calls_every_minute(bundle):
    route = routes(bundle)[2]
    assert (route["receiver"], route["group_interval"], route["repeat_interval"]) == ("watchdog", "1m", "50s")
    assert seconds(route["group_interval"]) == trial_page.BEAT_S


def test_every_alert_has_a_kind_of_fault_and_prometheus_says_it(bundle):
    prometheus = yaml.safe_load((bundle / "deploy/prometheus/prometheus.yml").read_text())
    given: dict[str, str] = {}
    for rule in prometheus["alerting"]["alert_relabel_configs"]:
        assert (rule["source_labels"], rule["target_label"]) == (["alertname"], "fault")
        for name in rule["regex"].split("|"):
            assert name not in given
            given[name] = rule["replacement"]
    named = {name for name, labels in alerts(bundle).items() if labels["severity"] != "none"}
    assert set(given) == named
    assert set(given.values()) == {"speech", "server", "sight", "device"}


def test_a_message_lists_first_what_explains_the_others():
    known = catalogue.load()
    order = catalogue.worst_first(known)
    assert set(order) == {name for name, entry in known.items() if entry.severity == "page"}
    assert order[0] == "ModelServerDown"
    assert order.index("SiteSilent") < order.index("DeviceSilent")


def test_only_a_page_silences_and_by_a_cause_that_it_gives(bundle):
    given = inhibition.causes(bundle)
    for name, entry in inhibition.CATALOGUE.items():
        for explained in entry.explains:
            assert entry.severity == "page", name
            assert set(explained.causes) <= set(given[name])
    for rule in config(bundle)["inhibit_rules"]:
        assert rule["equal"] == ["site", "device"]
        assert 'device=~".+"' in rule["source_matchers"]


@pytest.mark.needs(PAGERDUTY_KEY_FILE, MAIL_PASSWORD_FILE)
def test_all_receivers_together_are_a_valid_configuration(tmp_path):
    rendered(tmp_path, parse(EVERYTHING))
    done = amtool(tmp_path, "check-config", CONFIG)
    assert done.returncode == 0, done.stdout + done.stderr
    page, ticket, watchdog = config(tmp_path)["receivers"][1:]
    assert set(page) == {"name", "webhook_configs", "pagerduty_configs", "slack_configs", "email_configs"}
    assert set(ticket) == {"name", "email_configs"}
    assert watchdog["webhook_configs"] == [{"url": "https://switch.example/orin", "send_resolved": False}]
    for settings in (page["pagerduty_configs"], page["slack_configs"], page["email_configs"]):
        assert settings[0]["send_resolved"] is True


def test_secrets_are_in_files_only(tmp_path):
    text = (rendered(tmp_path, parse(EVERYTHING)) / CONFIG).read_text()
    for secret in ("routing_key", "api_url", "smtp_auth_password"):
        assert f"{secret}_file: " in text
        assert not re.search(rf"\b{secret}: ", text)


def test_a_receiver_without_anything_is_valid(tmp_path):
    rendered(tmp_path, parse("receivers: {page_webhook_url: '', ticket_webhook_url: ''}"))
    assert amtool(tmp_path, "check-config", CONFIG).returncode == 0
    assert config(tmp_path)["receivers"][1:] == [{"name": "page"}, {"name": "ticket"}, {"name": "watchdog"}]


@pytest.mark.parametrize(
    ("address", "bridge"),
    [
        ("127.0.0.1:9095", "127.0.0.1:9095"),
        ("127.0.0.1:9668", "127.0.0.1:9668"),
        ("0.0.0.0:9668", "127.0.0.1:9668"),
        (":9668", "127.0.0.1:9668"),
        ("[::]:9668", "[::1]:9668"),
        ("[::1]:9668", "[::1]:9668"),
        ("orin.example:9095", "orin.example:9095"),
    ],
)
def test_the_page_and_the_ticket_go_to_the_bridge_unless_said_otherwise(tmp_path, address, bridge):
    rendered(tmp_path, parse(f"notify: {{listen_address: '{address}'}}"))
    urls = [one["webhook_configs"][0]["url"] for one in config(tmp_path)["receivers"][1:3]]
    assert urls == [f"http://{bridge}/page", f"http://{bridge}/ticket"]


SLACK = "receivers: {page: {slack_api_url_file: /slack}}"
ROBOT = "{kind: feishu, url_file: /robot, severities: [ticket]}"


@pytest.mark.parametrize(
    ("settings", "bridge"),
    [
        ("{}", ["page", "ticket"]),
        ("receivers: {page: {slack_channel: '#speech'}}", ["page", "ticket"]),
        (SLACK, []),
        ("receivers: {ticket: {email_to: a@example.org}}", ["page"]),
        ("receivers: {page_webhook_url: 'https://pager.example/hook'}", []),
        (f"notify: {{robots: [{ROBOT}]}}", ["page", "ticket"]),
        (f"{SLACK}\nnotify: {{robots: [{ROBOT}]}}", ["ticket"]),
        (f"{SLACK}\nnotify: {{robots: [{{kind: wecom, url_file: /robot}}]}}", ["page", "ticket"]),
    ],
)
def test_the_bridge_gets_what_it_has_a_robot_for_and_pages_that_nobody_else_is_told(
    tmp_path, settings, bridge
):
    """What Alertmanager cannot deliver there it counts as failed."""
    rendered(tmp_path, parse(settings))
    hooks = [hook["url"] for one in config(tmp_path)["receivers"] for hook in one.get("webhook_configs", [])]
    found = [url.rpartition("/")[2] for url in hooks if url.startswith("http://127.0.0.1:9095/")]
    assert found == bridge


def test_a_webhook_that_is_no_address_is_refused_in_words():
    with pytest.raises(SettingsError, match=r"receivers\.page_webhook_url: expected text: http.*, got 5"):
        parse("receivers: {page_webhook_url: 5}")
