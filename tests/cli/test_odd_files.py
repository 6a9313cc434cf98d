"""A FIFO, a socket, a device or a folder in the place of a file that a user names: refused in a line, and never waited for."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.imports import PACKAGE
from helpers.odd_files import ENDLESS, KINDS
from omniwatch import client
from omniwatch.bundle import alertmanager
from omniwatch.centre import query
from omniwatch.cli import main
from omniwatch.settings import Settings
from omniwatch.settings.fleet import Fleet
from omniwatch.system import user_file, user_yaml
from omniwatch.system.errors import UserError
from omniwatch.web import config as web

COMMANDS = [
    *("render --out {out} --config.file {odd}", "check --config.file {odd}", "replay {odd}"),
    *(
        "replay {fine} --config.file {odd}",
        "exporter --config.file {odd}",
        "runbook CodecDrift --config.file {odd}",
    ),
    *(
        "exporter {fine} --web.config.file {odd}",
        "notify --config.file {odd}",
        "page --test --config.file {odd}",
    ),
    *(
        "tune --config.file {odd}",
        "fleet off --config.file {odd}",
        "fleet targets {odd}",
        "fleet serve {odd}",
    ),
    *("fleet serve {fleet} --web.config.file {odd}", "fleet status --config.file {odd}"),
    *("fleet status --inventory {odd}", "fleet status --token-file {odd}"),
    *(
        "backtest {fine} --config.file {odd}",
        "backtest {fine} --rules {odd}",
        "backtest {fine} --against {odd}",
    ),
    *("explain --file {odd}", "explain --file {fine} --config.file {odd}"),
    *("explain --file {fine} --device {odd}", "replay {fine} --device {odd}"),
    *("bench compare {odd} {fine}", "bench merge --vllm {odd}", "plan {odd}", "plan --startup-log {odd}"),
    *("dashboards draw --out {out} --config.file {odd}", "dashboards push --token-file {odd}"),
    "link --to 127.0.0.1:9 --scenario {odd}",
]
"""Each option and argument that names a file to be read."""
READERS = {
    "the readers themselves": {"system/user_file.py", "system/rooted.py", "system/user_yaml.py"},
    "the kernel's files, without waiting": {"system/sysfs.py", "tap/ear.py"},
    "an event file that is written to: it is seen first, and opened without waiting": {"sources/rotation.py"},
    "the tap's own event file, which it writes": {"tap/spool.py"},
    "a lock beside that file, of which nothing is read": {"resume/neighbours.py"},
    "a file of the sidecar's own directories, opened for writing": {
        "sidecar/state_lock.py",
        "sidecar/device_log.py",
    },
    "a lock on a folder": {"bundle/installed_files.py", "desk/slice/work.py"},
    "without waiting, and files that never end are cut": {"doctor/device.py"},
    "a file that this program has just written": {
        *("desk/slice/apply.py", "desk/slice/copying.py", "desk/slice/streaming.py"),
        *("bundle/check.py", "bundle/systemctl.py", "desk/child_process.py", "desk/demo/__init__.py"),
        *("system/atomic_write.py", "desk/backtest/tsdb.py", "desk/cli/backtest.py", "doctor/bundle.py"),
    },
    "the program's own files": {
        *("bundle/catalogue.py", "bundle/profiles.py", "bundle/program_files.py", "bundle/render.py"),
        *("bundle/yaml_text.py", "cli/__init__.py", "cli/explain.py", "cli/runbook.py", "web/__init__.py"),
        *("web/runbook_pages.py", "web/static_files.py", "web/words.py"),
    },
    "rendered text, which is in memory": {"desk/backtest/routes.py", "desk/backtest/site.py"},
    "what the demo itself has rendered": {"desk/demo/fleet.py"},
    "a descriptor of the reader's": {"replay/recording.py"},
    "a device that the command is for": {"desk/link/tun.py", "desk/cli/simulate/__init__.py"},
    "a file that was found to be regular": {"desk/plan/disk.py", "desk/slice/answers.py"},
    "certificates, once they were read by the reader": {
        *("bundle/alertmanager.py", "client/__init__.py", "centre/query.py", "cli/watch.py", "web/tls.py"),
    },
    "no file is named": {
        "client/opus.py",
        "desk/slice/asking.py",
        "resume/chat.py",
        "resume/opus.py",
        "system/http.py",
    },
}
"""Modules that open files in a way of their own, and why a user's odd file cannot hold them up."""


def _bridge(odd: Path) -> object:
    config = odd.with_name("omniwatch.yaml")
    config.write_text(f"notify: {{robots: [{{kind: feishu, url_file: {odd}}}]}}")
    done = CliRunner().invoke(main, ["notify", "--config.file", str(config)])
    raise UserError(done.stderr.strip())


def _web(odd: Path, setting: str) -> object:
    config = odd.with_name("web.yml")
    files = {"cert_file": "fine", "key_file": "fine"} | {setting: odd.name}
    named = ", ".join(f"{name}: {file}" for name, file in files.items())
    odd.with_name("fine").write_text("")
    config.write_text(f"tls_server_config: {{{named}}}")
    return web.load(config)


def _alertmanager(odd: Path, setting: str) -> object:
    urls = ["https://127.0.0.1:9"]
    fleet = Fleet(remote_write_url="https://c/w", alertmanager_urls=urls, **{setting: str(odd)})
    return alertmanager.of(Settings(fleet=fleet))[0].alerts("orin")


NAMED: dict[str, Callable[[Path], object]] = {
    "a robot's url_file": _bridge,
    **{
        f"web.yml {name}": partial(_web, setting=name) for name in ("cert_file", "key_file", "client_ca_file")
    },
    **{f"fleet.{name}": partial(_alertmanager, setting=name) for name in ("token_file", "ca_file")},
    "fleet token": lambda odd: query.Centre("https://127.0.0.1:9", token_file=odd),
    "fleet ca": lambda odd: query.Centre("https://127.0.0.1:9", ca_file=odd),
    "client ca": lambda odd: client.Client("https://127.0.0.1:9", client.TurnCallbacks(), ca_file=odd),
}
"""What reads each kind of file that a configuration names: secrets, certificates, authorities."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_it_is_refused_in_a_line(tmp_path: Path, command: str, kind: str) -> None:
    odd = tmp_path / "odd.yaml"
    KINDS[kind](odd)
    (tmp_path / "fine").write_text("{}")
    (tmp_path / "fleet").write_text("devices: [{name: a, address: 127.0.0.1}]")
    names = {"odd": odd, "fine": tmp_path / "fine", "fleet": tmp_path / "fleet", "out": tmp_path / "out"}
    done = CliRunner().invoke(main, command.format(**names).split())
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1), (done.output, done.exception)
    assert "odd.yaml" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", NAMED)
def test_what_a_configuration_names_is_refused_in_a_line(tmp_path: Path, what: str, kind: str) -> None:
    odd = tmp_path / "odd.yaml"
    KINDS[kind](odd)
    with pytest.raises((UserError, ValueError)) as raised:
        NAMED[what](odd)
    assert f"{odd}: " in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_no_module_reads_a_users_file_in_another_way() -> None:
    opening = {
        *("read_text", "read_bytes", "open", "FileIO", "load_cert_chain", "load_verify_locations"),
        *("create_default_context", "safe_load", "yaml.load"),
    }
    readers = ("user_file", "user_yaml", "rooted", "sysfs", "self", "self.store", "self._handler")
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call):
                owner, _, name = ast.unparse(node.func).rpartition(".")
                # Alone, read_text is the one of `system/sysfs.py`.
                if (
                    {name, f"{owner}.{name}"} & opening
                    and owner not in readers
                    and not (name == "read_text" and not owner)
                ):
                    found.add(str(path.relative_to(PACKAGE)))
    assert found == set().union(*READERS.values())


def test_what_grows_without_end_is_read_to_its_bound(tmp_path: Path) -> None:
    ENDLESS(tmp_path / "file")
    with pytest.raises(OSError, match="longer than 1000 bytes") as raised:
        user_file.read(tmp_path / "file", 1000)
    assert raised.value.filename == str(tmp_path / "file")
    with pytest.raises(OSError, match=f"longer than {user_yaml.MAX_BYTES} bytes"):
        user_yaml.load(tmp_path / "file")


def test_what_is_no_text_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xff")
    with pytest.raises(OSError, match="not UTF-8: invalid start byte"):
        user_file.read_text(tmp_path / "file")
