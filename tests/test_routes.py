"""Alertmanager's configuration: every alert has its receiver, secrets stay in files, and the scheme of silences is whole."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from bundles import rendered
from inhibition import ALONE, DEVICE, FLEET, SERVER, SIGHT, SILENCES, SOURCE_PAIRS, SPEECH, STREAM_PAIRS
from omniwatch.settings import SettingsError, parse

CONFIG = "deploy/alertmanager/alertmanager.yml"
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
    files = [yaml.safe_load(path.read_text()) for path in bundle.glob("alerts/*.rules.yaml")]
    rules = [rule for file in files for group in file["groups"] for rule in group["rules"]]
    return {rule["alert"]: rule["labels"] for rule in rules if "alert" in rule}


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


def test_alerts_of_one_name_on_one_device_are_one_message(bundle):
    route = config(bundle)["route"]
    assert route["group_by"] == ["alertname", "device"]
    assert [child.get("group_by") for child in route["routes"]] == [None, None, None]


def test_a_watchdog_calls_every_minute(bundle):
    route = config(bundle)["route"]["routes"][2]
    assert (route["receiver"], route["group_interval"], route["repeat_interval"]) == ("watchdog", "1m", "50s")


def test_every_alert_is_in_the_scheme_of_silences_and_the_scheme_knows_no_other(bundle):
    known = SPEECH | SERVER | DEVICE | SIGHT | FLEET | ALONE
    assert known == set(alerts(bundle))
    assert set(SILENCES) | {name for names in SILENCES.values() for name in names} <= known


def test_the_rendered_silences_are_the_scheme(bundle):
    found: dict[str, set[str]] = {}
    narrow: dict[str, set[tuple[str, str]]] = {"stream": set(), "source": set()}
    for rule in config(bundle)["inhibit_rules"]:
        (sources, device), (targets,) = rule["source_matchers"], rule["target_matchers"]
        assert device == 'device=~".+"'
        for source in re.fullmatch(r'alertname=~"(.+)"', sources)[1].split("|"):
            names = re.fullmatch(r'alertname=~"(.+)"', targets)[1].split("|")
            found.setdefault(source, set()).update(names)
            if rule["equal"] == ["device"]:
                continue
            assert rule["equal"] in (["device", "instance", "stream"], ["device", "source"])
            narrow[rule["equal"][-1]] |= {(source, name) for name in names}
    assert found == SILENCES
    assert narrow == {"stream": STREAM_PAIRS, "source": SOURCE_PAIRS}


def test_one_blind_source_of_several_silences_nothing_of_the_others(tmp_path):
    rendered(tmp_path, parse("sources: ['tail:/run/a.jsonl', 'tail:/run/b.jsonl']"))
    for rule in config(tmp_path)["inhibit_rules"]:
        if re.search(r"\b(SpoolFull|SidecarBlind)\b", rule["source_matchers"][0]):
            assert rule["equal"] == ["device", "source"]


def test_at_the_centre_which_knows_no_sources_a_blind_one_silences_nothing_of_others(bundle):
    centre = yaml.safe_load((bundle / "deploy/fleet/centre-alertmanager.yml").read_text())
    own = config(bundle)["inhibit_rules"]
    blind = [
        rule for rule in own if "SidecarBlind" in rule["source_matchers"][0] and rule["equal"] == ["device"]
    ]
    assert len(blind) == 1
    assert blind[0] not in centre["inhibit_rules"]


def test_a_ticket_silences_no_page_and_nothing_silences_itself_or_its_silencer(bundle):
    severities = {name: labels["severity"] for name, labels in alerts(bundle).items()}
    for source, targets in SILENCES.items():
        assert severities[source] == "page"
        for target in targets:
            assert source not in SILENCES.get(target, set()) | {target}


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
    """What Alertmanager cannot deliver there would make the centre of a fleet page for a second time."""
    rendered(tmp_path, parse(settings))
    hooks = [hook["url"] for one in config(tmp_path)["receivers"] for hook in one.get("webhook_configs", [])]
    found = [url.rpartition("/")[2] for url in hooks if url.startswith("http://127.0.0.1:9095/")]
    assert found == bridge


def test_a_webhook_that_is_no_address_is_refused_in_words():
    with pytest.raises(SettingsError, match=r"receivers\.page_webhook_url: expected text like .*, got 5"):
        parse("receivers: {page_webhook_url: 5}")
