"""What holds for every command: help with an example, one line and exit 2 for what the user can mend."""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import re
import socket
import subprocess
import sys
import termios
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from omniwatch import __version__, cli
from omniwatch.bundle import installed_files
from omniwatch.cli import Commands, main
from omniwatch.settings import Settings, parse
from omniwatch.system import parts, ports
from omniwatch.system.errors import UserError


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
    device, desk = shown.split("On a device:")[1].split("At a desk:")
    for listed, known in ((device, cli.of_device()), (desk, cli.commands_in(cli.DESK))):
        for name, module in known.items():
            purpose = (importlib.import_module(module).__doc__ or "").splitlines()[0]
            assert purpose.endswith(".")
            assert f"{name} {purpose}" in listed


@pytest.mark.parametrize(
    "part", [part for part in parts.TABLE if part.commands], ids=lambda part: part.folder
)
def test_a_command_of_a_part_that_is_not_here_is_one_line_with_what_to_do(monkeypatch, part):
    assert part.is_here()
    assert set(part.commands) == cli.commands_in(parts.PACKAGE / part.folder / "cli").keys()
    monkeypatch.setattr(parts, "PACKAGE", parts.PACKAGE / "not" / "there")
    listed = CliRunner().invoke(main, [*part.group.split(), "--help"]).output
    for name in part.commands:
        assert not re.search(rf"^  {name}  ", listed, re.MULTILINE)
        result = CliRunner().invoke(main, [*part.group.split(), name, "--help"])
        assert result.exit_code == 2
        (line,) = result.output.splitlines()
        assert line.startswith(
            f"Error: {f'{part.group} {name}'.strip()}: this machine lacks {part.what}: {part.how}"
        )
        assert "the environment that omniwatch was installed from" in line


def test_settings_that_ask_for_a_part_which_is_not_here_are_told_so_by_its_name(monkeypatch):
    robot = "{kind: wecom, url_file: /url}"
    asked = parse(f"{{fleet: {{centre: true}}, notify: {{robots: [{robot}]}}, resume: {{middleware: true}}}}")
    assert not list(parts.lacking(asked))
    monkeypatch.setattr(parts, "PACKAGE", parts.PACKAGE / "not" / "there")
    assert not list(parts.lacking(parse("{}")))
    lines = [line.split(":")[0] for line in parts.lacking(asked)]
    assert lines == [part.setting for part in parts.TABLE]


def test_on_a_device_a_desks_command_is_named_in_one_line_with_the_ways_to_get_it(monkeypatch, tmp_path):
    assert set(cli.DESK_COMMANDS) == cli.commands_in(cli.DESK).keys()
    monkeypatch.setattr(cli, "DESK", cli.DEVICE.parent / "not" / "there")
    shown = CliRunner().invoke(main, ["--help"]).output
    assert "At a desk" not in shown
    for name in cli.DESK_COMMANDS:
        result = CliRunner().invoke(main, [name, "--help"])
        assert result.exit_code == 2
        (line,) = result.output.splitlines()
        assert line.startswith(f"Error: {name}: ")
        assert "the environment that omniwatch was installed from" in line
        assert "Debian package omniwatch-desk" in line


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("stauts", 'the closest is "status"'),
        ("backtset", 'the closest is "backtest"'),
        ("frobnicate", "`omniwatch --help` lists all"),
    ],
)
def test_a_mistyped_command_is_one_line_with_a_good_suggestion_or_none(name, hint):
    result = CliRunner().invoke(main, [name, "--json"])
    assert (result.exit_code, result.stderr) == (2, f'Error: no command "{name}"; {hint}\n')


@pytest.mark.parametrize(
    "words", [["install"], ["install", "--profile", "nosuch"], ["uninstall"], ["uninstall", "--purge"]]
)
def test_without_root_the_first_word_is_that_root_is_needed(monkeypatch, words):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    def locked(root: Path) -> None:
        raise AssertionError(f"{root} was about to be changed")

    # Whatever the command does, this machine stays as it is.
    monkeypatch.setattr(installed_files, "alone", locked)
    result = CliRunner().invoke(main, words)
    said = f"Error: {words[0]} needs root: run `sudo omniwatch {words[0]}`, or with --dry-run to see what it would do\n"
    assert (result.exit_code, result.output) == (2, said)


def test_version():
    assert CliRunner().invoke(main, ["--version"]).output == f"omniwatch, version {__version__}\n"


SETTLED = {"exporter", "render", "replay"}
"""Commands that read settings, of those that are run here."""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    name, *rest = words
    if name in SETTLED and not any(word.startswith("--config.file") for word in rest):
        rest.insert(0, "--config.file=/dev/null")
    return subprocess.run(
        [sys.executable, "-m", "omniwatch", name, *rest],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
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


def test_the_sidecar_does_not_load_the_bundle():
    done = subprocess.run(
        [
            sys.executable,
            "-X",
            "importtime",
            "-m",
            "omniwatch",
            "exporter",
            "--config.file=/dev/null",
            "--config.check",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert "msgspec" in imported
    # Where the runbooks lie, which it shows as pages.
    of_bundle = {name for name in imported if name.startswith("omniwatch.bundle")}
    assert of_bundle <= {"omniwatch.bundle", "omniwatch.bundle.data"}


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
            'alerts.drift_page_ms: expected a number >= 0.001, <= 1e+09, got "sixty"',
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
        (
            ["exporter", "--config.check", "nosuch:abc"],
            "source nosuch:abc: expected tail:PATH, journal:UNIT, - or a path",
        ),
        (["exporter", "--config.check", "journald:x"], "source journald:x: expected tail:PATH"),
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
@pytest.mark.slow
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
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/omniwatch.yaml: the configuration is good\n")


def command_of(words: list[str]) -> click.Command:
    command: click.Command = main
    for word in words:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    return command


def default_address(words: list[str]) -> str:
    listen = next(option for option in command_of(words).params if option.name == "listen")
    return listen.default[0] if listen.multiple else listen.default


@pytest.mark.parametrize(
    ("error", "code", "said"), [(UserError("x.yaml: y"), 2, "Error: x.yaml: y\n"), (ValueError("z"), 1, "")]
)
def test_only_what_the_user_can_mend_becomes_a_line(monkeypatch, error, code, said):
    def fail():
        raise error

    monkeypatch.setattr(Commands, "get_command", lambda *_: click.Command("failing", callback=fail))
    done = CliRunner().invoke(main, ["failing"])
    assert (done.exit_code, done.stderr) == (code, said)


def test_one_thing_has_one_name():
    for words in ALL:
        for line in CliRunner().invoke(main, [*words, "--help"]).output.split("Options:")[-1].splitlines():
            flags = re.match(r"\s+(?:-\w, )?(--[\w.-]+)", line)
            if flags and re.search(r"listen|prometheus", flags[1]):
                assert flags[1] in ("--web.listen-address", "--prometheus.url", "--with-prometheus"), words


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_what_a_command_makes_goes_to_out_and_json_is_printed(words):
    for option in command_of([*words]).params:
        assert "--output" not in option.opts
        assert "--json" not in option.opts or option.is_flag


def test_no_two_programs_listen_on_one_port():
    site = Settings()
    settings = [site.site.exporter, site.site.alertmanager, site.notify.listen_address]
    settings += [site.fleet.agent_address, site.fleet.prometheus]
    flags = [default_address(words) for words in (["probe"], ["simulate", "fleet"], ["fleet", "serve"])]
    found = [int(address.rpartition(":")[2]) for address in (*settings, *flags)]
    assert sorted(set(found)) == sorted(found)
    own = {value for name, value in vars(ports).items() if name.isupper()}
    assert own <= set(found)


@pytest.mark.parametrize(
    ("line", "drawn"), [("{}", True), ("{} --quiet", False), ("set -m; {} & wait", False)]
)
def test_progress_is_drawn_in_a_terminals_foreground_only(tmp_path, line, drawn):
    command = f"{sys.executable} -m omniwatch simulate --scenario steady --speed max --duration 5"
    near, far = os.openpty()

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(far, termios.TIOCSCTTY, 0)

    done = subprocess.run(
        ["sh", "-c", line.format(f"{command} --out {tmp_path / 'events.jsonl'}")],
        stdin=far,
        stdout=subprocess.DEVNULL,
        stderr=far,
        preexec_fn=own_terminal,
        timeout=60,
        check=False,
    )
    os.close(far)
    shown = b""
    with contextlib.suppress(OSError):  # EIO: all has been read
        while part := os.read(near, 4096):
            shown += part
    os.close(near)
    assert done.returncode == 0
    assert (tmp_path / "events.jsonl").stat().st_size > 0
    assert (b"steady  " in shown) is drawn


def test_help_says_how_backtest_and_replay_differ():
    assert "`omniwatch replay`" in CliRunner().invoke(main, ["backtest", "--help"]).output


@pytest.mark.parametrize("name", [*cli.of_device()])
def test_the_help_of_a_device_names_no_command_of_the_desk(name):
    help_text = CliRunner().invoke(main, [name, "--help"]).output
    assert set(re.findall(r"omniwatch ([a-z][a-z-]*)", help_text)) & {*cli.DESK_COMMANDS} == set()
