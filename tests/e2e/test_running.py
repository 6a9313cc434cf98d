"""What a real Prometheus and Alertmanager say that they run with, against what was rendered for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import pytest

from helpers.bundles import COARSE, FINE
from helpers.needs import MAIL_PASSWORD_FILE, PAGERDUTY_KEY_FILE
from helpers.waiting import wait_until
from omniwatch.bundle import render, running, servers
from omniwatch.bundle.wiring import ALERTMANAGER, PROMETHEUS, plain
from omniwatch.bundle.yaml_text import load_yaml
from omniwatch.desk.demo.local_stack import Stack
from omniwatch.settings import Settings, parse

EVERYTHING = parse(
    """
receivers:
  watchdog_webhook_url: https://switch.example/orin
  page: {pagerduty_routing_key_file: /k, slack_api_url_file: /s, slack_channel: '#a', email_to: 'a@example.org, b@example.org'}
  ticket: {email_to: c@example.org}
  mail: {username: u, password_file: /p, require_tls: false}
notify: {robots: [{kind: wecom, url_file: /w}]}

"""
)


NEEDED = pytest.mark.needs(PAGERDUTY_KEY_FILE, MAIL_PASSWORD_FILE)


class Compared:
    """A chain of real servers, and what they run with."""

    def __init__(self, stack: Stack) -> None:
        self.bundle = stack.directory / "bundle"
        self.stack = stack

    def answers(self) -> servers.Answers:
        return servers.ask(self.stack.settings, 10)

    def content(self, path: PurePosixPath | str) -> Any:
        return load_yaml((self.bundle / path).read_bytes())

    def configurations(self) -> list[str]:
        told = self.answers()
        return [
            running.difference(
                self.content(server.rendered), runs, str((self.bundle / server.rendered).parent)
            )
            for server, runs in ((PROMETHEUS, told.config), (ALERTMANAGER, told.routing))
        ]

    def rules(self) -> list[str]:
        base = PurePosixPath(self.bundle / PROMETHEUS.rendered).parent
        paths = [plain(base / name) for name in self.content(PROMETHEUS.rendered)["rule_files"]]
        contents = {str(path): load_yaml(Path(path).read_bytes()) for path in paths}
        groups = wait_until(lambda: self.answers().groups)
        assert sum(len(group.rules) for group in groups) > 50
        return list(running.rule_differences(contents, groups))

    def write(self, settings: Settings) -> None:
        """Render other settings in the place of those that run; the servers are not told."""
        merged = msgspec.structs.replace(
            settings, site=msgspec.structs.replace(self.stack.settings.site), fleet=self.stack.settings.fleet
        )
        render.write(render.render(merged), self.bundle)


@pytest.fixture(
    scope="module", params=["defaults", "fine", "coarse", pytest.param("everything", marks=NEEDED)]
)
def compared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compared]:
    settings = {"defaults": Settings(), "fine": FINE, "coarse": COARSE, "everything": EVERYTHING}[
        request.param
    ]
    directory = tmp_path_factory.mktemp("stack")
    with Stack(directory / "s", settings, say=lambda line: None) as stack:
        yield Compared(stack)


def test_what_runs_is_what_was_rendered(compared: Compared) -> None:
    assert compared.configurations() == ["", ""]
    assert compared.rules() == []


@pytest.mark.parametrize("compared", ["defaults"], indirect=True)
@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ("receivers: {watchdog_webhook_url: 'https://other.example/'}", ["", "receivers[3].webhook_configs"]),
        ("receivers: {group_interval_s: 77}", ["", "route.routes[0].group_interval"]),
        ("notify: {robots: [{kind: wecom, url_file: /w}]}", ["scrape_configs", ""]),
        ("alerts: {evaluation_interval_s: 3}", ["global.evaluation_interval", ""]),
    ],
)
def test_what_was_written_since_is_not_what_runs(compared: Compared, settings: str, where: list[str]) -> None:
    base = compared.stack.settings
    changed = parse(settings)
    receivers = changed.receivers if "receivers" in settings else base.receivers
    compared.write(msgspec.structs.replace(changed, receivers=receivers))
    try:
        found = compared.configurations()
        assert [bool(one) for one in found] == [bool(one) for one in where], found
    finally:
        compared.write(base)


@pytest.mark.parametrize("compared", ["defaults"], indirect=True)
def test_a_threshold_that_was_written_since_is_named(compared: Compared) -> None:
    base = compared.stack.settings
    compared.write(
        msgspec.structs.replace(
            base, alerts=msgspec.structs.replace(base.alerts, drift_page_ms=61, rtt_for_s=40)
        )
    )
    try:
        found = compared.rules()
    finally:
        compared.write(base)
    assert "CodecDrift has another expression" in found
    assert any(one.startswith("TokenRTT has another ") for one in found), found
    assert compared.rules() == []
