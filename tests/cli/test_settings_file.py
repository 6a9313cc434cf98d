"""Which configuration file a command reads: the one it is given, else the device's own where it is there, else the defaults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from helpers.bundles import rendered
from helpers.event_files import without_privileges
from helpers.installation import device, install
from omniwatch.bundle import installed_files
from omniwatch.cli import main
from omniwatch.system import places

SERVERLESS = ("--prometheus.url", "http://127.0.0.1:1")
WORDS = {
    "backtest": ["events.jsonl"],
    "check": [],
    "curves": ["-", "--out", "drawn.svg"],
    "dashboards diff": [],
    "dashboards draw": ["--out", "drawn"],
    "dashboards pull": ["--out", "pulled"],
    "dashboards push": [],
    "explain": ["--file", "events.jsonl"],
    "exporter": ["--config.check"],
    "fleet off": [],
    "fleet status": [],
    "notify": [],
    "page": ["--test"],
    "render": ["streaming.rules.yaml"],
    "replay": ["-"],
    "tune": ["--seconds", "1"],
    "watch": ["--once"],
}
"""What makes each command read its settings first."""
OF_THEIR_OWN = {"doctor", "runbook"}
"""Commands that go on where the settings do not hold."""


def commands(group: click.Group = main, before: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*before, name))
        else:
            yield " ".join((*before, name)), command


def test_every_command_that_reads_settings_is_tried_here() -> None:
    reading = {
        name for name, command in commands() if any(one.name == "config_file" for one in command.params)
    }
    assert reading == set(WORDS) | OF_THEIR_OWN


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this machine's own settings would be."""
    monkeypatch.setattr(places, "CONFIG", tmp_path / "omniwatch.yaml")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "events.jsonl").write_text("")
    return tmp_path / "omniwatch.yaml"


@pytest.mark.parametrize("name", WORDS)
def test_without_the_option_the_devices_own_file_is_read(own: Path, name: str) -> None:
    own.write_text("alerts: {drift_page_ms: sixty}")
    done = CliRunner().invoke(main, [*name.split(), *WORDS[name]], input="")
    assert done.exit_code == 2, done.output
    assert "omniwatch.yaml: alerts.drift_page_ms: expected" in done.stderr
    good = own.with_name("good.yaml")
    good.write_text("")
    done = CliRunner().invoke(main, [*name.split(), *WORDS[name], "--config.file", str(good), "-v"], input="")
    assert "drift_page_ms" not in done.stderr
    assert f"configuration: {good}\n" in done.stderr


@pytest.mark.parametrize("is_there", [True, False])
def test_which_one_was_read_is_said(own: Path, is_there: bool) -> None:
    if is_there:
        own.write_text("alerts: {drift_page_ms: 75}")
    done = CliRunner().invoke(main, ["render", "streaming.rules.yaml", "-v"])
    said = str(own) if is_there else f"the defaults; {own} is not there"
    assert done.stderr.splitlines()[0] == f"configuration: {said}"
    assert f"> {75 if is_there else 60}\n" in done.stdout
    assert CliRunner().invoke(main, ["render", "streaming.rules.yaml"]).stderr == ""
    checked = CliRunner().invoke(main, ["exporter", "--config.check"]).stdout
    assert checked == f"{own if is_there else 'the defaults'}: the configuration is good\n"


def test_one_that_may_not_be_read_is_not_passed_over(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = own.parent / "closed"
    inside.mkdir()
    monkeypatch.setattr(places, "CONFIG", inside / "omniwatch.yaml")
    inside.chmod(0)
    own.parent.chmod(0o755)
    with without_privileges():
        done = CliRunner().invoke(main, ["exporter", "--config.check"])
    inside.chmod(0o755)
    assert (done.exit_code, done.stderr) == (2, f"Error: {inside}/omniwatch.yaml: Permission denied\n")


def test_a_bundle_is_checked_whatever_the_devices_own_file_says(own: Path) -> None:
    own.write_text("alerts: {drift_page_ms: sixty}")
    done = CliRunner().invoke(main, ["check", str(rendered(own.parent / "bundle"))])
    assert done.exit_code == 0, done.output


def test_check_judges_delivery_by_the_devices_own_file(own: Path) -> None:
    own.write_text("")
    done = CliRunner().invoke(main, ["check"])
    assert done.exit_code == 1
    assert "nobody is told of a page" in done.stdout


def test_a_runbook_is_shown_whatever_the_devices_own_file_says(own: Path) -> None:
    own.write_text("alerts: {drift_page_ms: sixty}")
    assert CliRunner().invoke(main, ["runbook", "CodecDrift"]).output.startswith("# CodecDrift\n")
    own.write_text("site: {access: ssh orin}")
    assert CliRunner().invoke(main, ["runbook", "CodecDrift"]).output.startswith("The device: ssh orin\n")


@pytest.mark.slow
def test_an_installation_says_it_of_its_own_tree(tmp_path: Path) -> None:
    root = device(tmp_path)
    assert "configuration: the defaults" in install(root, "-v").stderr
    assert f"configuration: {root}/etc/omniwatch/omniwatch.yaml\n" in install(root, "-v").stderr


def test_the_file_says_how_it_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the command of its own comment, where it was installed."""
    root = device(tmp_path)
    install(root)
    file = root / str(installed_files.CONFIG)[1:]
    comment = file.read_text().splitlines()[0]
    assert comment == (
        "# Omniwatch on this device, as /etc/omniwatch/omniwatch.yaml: `omniwatch exporter --config.check` checks it there. "
        "What is not said here has"
    )
    monkeypatch.setattr(places, "CONFIG", file)
    file.write_text(f"{file.read_text()}\nalerts: {{drift_page_ms: sixty}}\n")
    assert CliRunner().invoke(main, ["exporter", "--config.check"]).exit_code == 2
