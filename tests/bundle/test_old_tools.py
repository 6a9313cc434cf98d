"""The bundle on a device whose promtool and amtool are older than what they are to read: Ubuntu 22.04's, as JetPack 6 has them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.old_tools import old_tools
from omniwatch import settings
from omniwatch.bundle import check, features, render, uplink
from omniwatch.bundle.check import Status
from omniwatch.bundle.program_files import InstallError
from omniwatch.bundle.uplink import configuration
from omniwatch.cli import main

PLAIN = "receivers: {page_webhook_url: 'https://pager.example.org', watchdog_webhook_url: 'https://switch.example.org'}"
PAGERDUTY = PLAIN.replace("{page_", "{page: {pagerduty_routing_key_file: /etc/omniwatch/secrets/pd}, page_")
MAIL = PLAIN.replace(
    "{page_", "{page: {email_to: a@example.org}, mail: {username: u, password_file: /p}, page_"
)
FLEET = "fleet: {remote_write_url: 'http://centre/write', alertmanager_urls: ['http://centre'], agent: prometheus}"


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The only tools that are found."""
    (tmp_path / "bin").mkdir()
    found = old_tools(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return found


def run(tmp_path: Path, command: str, text: str, *options: str) -> tuple[int, list[str]]:
    site = tmp_path / "omniwatch.yaml"
    site.write_text(text)
    result = CliRunner().invoke(main, [command, "--config.file", str(site), *options])
    said = [line for line in result.output.splitlines() if not line.startswith("configuration: ")]
    return result.exit_code, said


def test_a_device_is_judged_by_what_its_tools_know(tmp_path, tools):
    code, lines = run(tmp_path, "check", PLAIN, "-v")
    assert code == 0, lines
    assert [line for line in lines[:-1] if not line.startswith(("SUCCESS: ", "NOTE: "))] == [
        "SKIPPED: promtool check rules: lint: this promtool has no lint"
    ]
    assert "SUCCESS: promtool check rules: alerts/streaming.rules.yaml" in lines
    assert not [line for line in lines if "tool" in line and "fleet" in line], (
        "no file of a centre or an uplink"
    )


def test_each_tool_is_asked_once_what_it_knows(tmp_path, tools):
    assert run(tmp_path, "check", PLAIN, "--centre")[0] == 1
    calls = Counter(Path(f"{tools['promtool']}.calls").read_text().splitlines())
    questions = {call: count for call, count in calls.items() if call.startswith("help ") or "asked" in call}
    assert len(questions) > 1
    assert set(questions.values()) == {1}


def test_a_centre_is_told_which_prometheus_it_needs(tmp_path, tools):
    code, lines = run(tmp_path, "check", PLAIN, "--centre")
    assert code == 1
    wrong = [line for line in lines if line.startswith("FAILED: ")]
    assert {line.split(": ")[2] for line in wrong} == {
        "alerts/fleet.rules.yaml",
        "deploy/fleet/centre-held.rules.yaml",
        "deploy/fleet/centre-prometheus.yml",
    }
    assert all("a centre's Prometheus is at least 2.39" in line for line in wrong)


@pytest.mark.parametrize(
    ("text", "setting"), [(PAGERDUTY, "pagerduty_routing_key_file"), (MAIL, "mail.password_file")]
)
def test_a_secret_in_a_file_is_refused_in_one_line_with_both_ways_out(tmp_path, tools, text, setting):
    code, lines = run(tmp_path, "check", text)
    (wrong,) = (line for line in lines if line.startswith("FAILED: "))
    assert code == 1
    for word in (setting, "Alertmanager of at least 0.25", "/usr/local/bin", "receivers.secrets: inline"):
        assert word in wrong


def test_rendering_goes_by_the_settings_alone(tmp_path, tools):
    """It may be for another device: what this one's tools cannot read is said and written all the same."""
    out = tmp_path / "out"
    code, lines = run(tmp_path, "render", PAGERDUTY, "--out", str(out))
    assert code == 0, lines
    skipped = {line.split(": ")[2] for line in lines if line.startswith("SKIPPED: ")}
    assert {"deploy/alertmanager/alertmanager.yml", "deploy/fleet/centre-prometheus.yml"} <= skipped
    assert "routing_key_file" in (out / "deploy/alertmanager/alertmanager.yml").read_text()


def test_prometheus_agent_is_refused_where_it_is_none(tmp_path, tools, monkeypatch):
    code, lines = run(tmp_path, "check", FLEET)
    assert code == 1
    (wrong,) = (line for line in lines if "uplink-prometheus.yml" in line)
    assert "at least 2.32" in wrong
    assert "fleet.agent: vmagent" in wrong
    site = settings.load(tmp_path / "omniwatch.yaml")
    old = (tools["prometheus"], "prometheus", ("uplink-prometheus.yml",))
    monkeypatch.setitem(uplink.AGENTS, "prometheus", old)
    with pytest.raises(
        InstallError, match=r"no agent mode.*2\.32; remove fleet\.agent: prometheus.*victoria-metrics"
    ):
        configuration(Path("/"), site, render.render(site))


def test_a_tool_that_gives_no_answer_is_taken_to_know_all(tmp_path):
    broken = tmp_path / "promtool"
    broken.write_text("no program")
    broken.chmod(0o755)
    known = features.Tools({"promtool": str(broken)}.get)
    assert known.knows(features.LINT)
    assert known.knows(features.PAGERDUTY_KEY_FILE), "amtool is not there"


@pytest.mark.programs
def test_the_installed_tools_answer_as_their_use_shows(tmp_path):
    """No feature is taken for absent that the tool has, nor the other way round."""
    files = render.render(settings.load(None))
    results = check.check_files(files, unit_tests=False, needed=check.NEEDS)
    assert not [
        str(result) for result in results if result.status is Status.FAILED and "exit code" in result.detail
    ]
