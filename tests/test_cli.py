"""What holds for every command: help with an example, one line and exit 2 for what the user can mend."""

from __future__ import annotations

import importlib
import socket
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from omniwatch import __version__
from omniwatch.cli import main


def commands(group: click.Group, *path: str) -> list[tuple[str, ...]]:
    """Return the words of every command, groups' own commands included."""
    context = click.Context(group)
    found: list[tuple[str, ...]] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        found.append((*path, name))
        if isinstance(command, click.Group):
            found += commands(command, *path, name)
    return found


ALL = commands(main)


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_command_has_help_with_an_example(words):
    result = CliRunner().invoke(main, [*words, "--help"])
    assert result.exit_code == 0
    assert "Example:" in result.output
    assert f"omniwatch {' '.join(words)}" in result.output.split("Example:")[1]


def test_the_list_of_commands_says_what_each_is_for():
    shown = " ".join(CliRunner().invoke(main, ["--help"]).output.split())
    for name in main.list_commands(click.Context(main)):
        purpose = (importlib.import_module(f"omniwatch.cli.{name}").__doc__ or "").splitlines()[0]
        assert purpose.endswith(".")
        assert f"{name} {purpose}" in shown


def test_version():
    assert CliRunner().invoke(main, ["--version"]).output == f"omniwatch, version {__version__}\n"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "omniwatch", *words], capture_output=True, text=True, timeout=60, check=False
    )


def test_help_imports_nothing_heavy():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "omniwatch", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert not imported & {"msgspec", "prometheus_client", "jinja2", "yaml", "matplotlib", "asyncio"}


@pytest.fixture
def bad(tmp_path):
    """Inputs a user could give by mistake, by name."""
    (tmp_path / "bad.yaml").write_text("alerts:\n  drift_page_ms: sixty\n")
    (tmp_path / "web.yml").write_text("tls_server_config:\n  cert: x\n")
    (tmp_path / "file").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["exporter", "--config.file={dir}/missing.yaml"], "missing.yaml: No such file"),
        (
            ["exporter", "--config.file={dir}/bad.yaml"],
            'alerts.drift_page_ms: expected a number > 0, got "sixty"',
        ),
        (["exporter", "--config.check", "--config.file={dir}/bad.yaml"], "bad.yaml: alerts.drift_page_ms"),
        (
            ["exporter", "--config.check", "--web.config.file={dir}/web.yml"],
            "web.yml: tls_server_config.cert",
        ),
        (["exporter", "--state-dir={dir}/file/below"], "{dir}/file"),
        (["exporter", "--web.listen-address=nowhere"], "--web.listen-address: expected host:port"),
        (["exporter", "journal:"], "journal: expected journal:UNIT"),
        (["exporter", "tail:"], "tail: expected tail:PATH"),
        (["simulate", "--scenario=hurricane"], "hurricane"),
        (["replay", "{dir}/missing.jsonl"], "missing.jsonl"),
        (["replay", "{dir}"], "{dir}"),
        (["render", "--config.file={dir}/bad.yaml"], "bad.yaml: alerts.drift_page_ms"),
        (["render", "nothing.yaml"], "nothing.yaml"),
        (["render", "--out={dir}/file"], "{dir}/file"),
        (["check", "{dir}/missing"], "missing"),
        (["demo", "--scenario=hurricane"], "hurricane"),
        (["demo", "--scenario=steady"], "steady"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_a_user_can_mend_is_one_line_and_exit_2(bad, words, said):
    done = run(*(word.format(dir=bad) for word in words))
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert said.format(dir=bad) in done.stderr


def test_a_port_in_use_is_said_and_exit_2(bad):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("exporter", f"--web.listen-address={address}")
    assert (done.returncode, done.stderr) == (
        2,
        f"Error: --web.listen-address {address}: cannot listen: the port is in use\n",
    )


def test_without_the_flag_the_address_is_the_settings(tmp_path):
    """A package's unit is the same whatever its omniwatch.yaml says."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        (tmp_path / "omniwatch.yaml").write_text(f"site: {{exporter: '{address}'}}\n")
        done = run("exporter", f"--config.file={tmp_path}/omniwatch.yaml")
    assert (done.returncode, done.stderr) == (
        2,
        f"Error: --web.listen-address {address}: cannot listen: the port is in use\n",
    )


def test_a_good_configuration_is_said_to_be_good(tmp_path):
    (tmp_path / "omniwatch.yaml").write_text("alerts: {drift_page_ms: 75}\n")
    done = run("exporter", "--config.check", f"--config.file={tmp_path}/omniwatch.yaml")
    assert (done.returncode, done.stdout) == (0, "the configuration is good\n")
