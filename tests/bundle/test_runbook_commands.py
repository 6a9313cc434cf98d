"""Every command of a runbook page can be typed: its programs are known, and flags, units, properties and queries exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
import yaml

from helpers.bundles import promtool
from helpers.runbooks import PAGES, PLACEHOLDER, Command, fenced, inline
from omniwatch.bundle import data, profiles
from omniwatch.bundle.installed_files import CONFIG
from omniwatch.bundle.units import OWN
from omniwatch.cli import main
from omniwatch.desk.promql import selectors
from omniwatch.settings import Settings

PROGRAMS = {
    "omniwatch": {"omniwatch"},
    "prometheus": {"promtool"},
    "prometheus-alertmanager": {"amtool"},
    "systemd": {"systemctl", "journalctl", "systemd-tmpfiles", "timedatectl"},
    "curl": {"curl"},
    "iproute2": {"ss"},
    "procps": {"free", "ps", "top"},
    "coreutils": {"cat", "df", "du", "head", "ls", "rm", "sort", "tail"},
    "grep": {"grep"},
    "gzip": {"zcat"},
    "util-linux": {"namei"},
}
"""Programs that a runbook may name, by the Debian package that has them."""
ESSENTIAL = {"coreutils", "grep", "gzip", "util-linux"}
"""Packages that every Debian system has."""
UNITS = {Settings().server.unit, *OWN}
FOREIGN_UNITS = {
    "dbus.socket",
    "prometheus",
    "prometheus.service",
    "prometheus-alertmanager",
    "prometheus-alertmanager.service",
    "multipathd.service",
    "multi-user.target",
}
ON_UNITS = {
    *("start", "stop", "restart", "reload", "status", "show", "cat", "is-active", "reset-failed"),
    *("enable", "disable", "set-property", "revert", "isolate", "edit"),
}
"""systemctl's verbs that are followed by units."""

FENCED, ALL = fenced(), fenced() + inline()
each_command = pytest.mark.parametrize(
    "command", ALL, ids=lambda command: f"{command.page}: {command.line[:60]}"
)


def test_there_are_commands_on_every_page():
    assert len(FENCED) > 100
    assert {command.page for command in FENCED} == {page.stem for page in PAGES}


def test_a_line_is_taken_apart_as_a_shell_does():
    line = Command("x", "cat \"/a$(systemctl show --value -p X 'y z')/b\" | grep -E '^a|b' > out; ls")
    assert line.programs() == [
        ["cat", "/a$(systemctl show --value -p X 'y z')/b"],
        ["grep", "-E", "^a|b"],
        ["ls"],
        ["systemctl", "show", "--value", "-p", "X", "y z"],
    ]
    assert Command("x", "promtool query instant http://127.0.0.1:9090 'up{a=\"b\"}'").queries() == [
        'up{a="b"}'
    ]


def test_every_program_is_known():
    known = set().union(*PROGRAMS.values())
    used = {words[0]: command for command in FENCED for words in command.programs()}
    assert {name: used[name] for name in set(used) - known} == {}
    assert known - set(used) <= {"timedatectl", "du", "sort", "rm"}, "what no page needs any more"


def test_package_recommends_what_runbooks_name():
    package = yaml.safe_load((data.root() / "deploy/packaging/omniwatch.yaml").read_text())
    assert set(package["recommends"]) == set(PROGRAMS) - ESSENTIAL - {"omniwatch", *package["depends"]}


def parsed(words: list[str]) -> None:
    """Have click read the words of an omniwatch command as it would, and run nothing."""
    group: click.Command = main
    context = main.make_context("omniwatch", ["--help"], resilient_parsing=True)
    while isinstance(group, click.Group):
        found = group.get_command(context, words[0])
        assert found is not None, f"omniwatch has no command {words[0]}"
        group, words = found, words[1:]
        context = click.Context(group, parent=context, info_name=group.name)
    group.make_parser(context).parse_args([word.replace("NAME", "x") for word in words])


@each_command
def test_every_omniwatch_command_takes_its_flags(command):
    for words in command.programs():
        if words[0] == "omniwatch":
            # Within the text a flag may stand without its value.
            complete = words if words[-1] not in ("--out", "--cap") else [*words, "x"]
            parsed(
                [word for word in complete[1:] if word != "--cap"]
                + (["--cap", "1"] if "--cap" in words else [])
            )


def test_a_flag_that_vllm_does_not_have_is_looked_for_in_the_installed_one():
    """Without --vllm no flag is looked at."""
    program = profiles.load(Settings().server.profile).words()[0]
    command = f"omniwatch check --config.file {CONFIG} --vllm {program}"
    rows = [
        line for page in PAGES for line in page.read_text().splitlines() if "`unrecognized arguments`" in line
    ]
    assert len(rows) == 1
    assert all(f"`{command}`" in row for row in rows)


def test_a_flag_or_a_command_that_is_not_there_is_noticed():
    with pytest.raises(click.NoSuchOption, match="--secs"):
        parsed(["tune", "--secs", "60"])
    with pytest.raises(AssertionError, match="no command tuna"):
        parsed(["tuna"])


def units_of(words: list[str]) -> list[str]:
    """Return the units that a systemctl or journalctl command names."""
    if words[0] == "journalctl":
        return [words[place + 1] for place, word in enumerate(words) if word == "-u"]
    found = []
    after_property = False
    for word in words[2:]:
        if not (after_property or word.startswith("-") or "=" in word):
            found.append(word)
        after_property = word == "-p"
    return found


@each_command
def test_every_unit_is_one_of_ours_or_is_known_and_every_property_is_systemds(command):
    for words in command.programs():
        if words[0] == "systemctl" and words[1] != "daemon-reload":
            verb = next(word for word in words[1:] if not word.startswith("-"))
            assert verb in ON_UNITS
            assert set(units_of([words[0], *words[words.index(verb) :]])) <= UNITS | FOREIGN_UNITS
        elif words[0] == "journalctl":
            assert set(units_of(words)) <= UNITS | FOREIGN_UNITS


def test_every_property_that_is_asked_for_is_one_of_systemds():
    asked = {
        words[place + 1]
        for command in FENCED
        for words in command.programs()
        if words[0] == "systemctl"
        for place, word in enumerate(words)
        if word == "-p"
    }
    libraries = [
        *Path("/usr/lib").glob("*/systemd/libsystemd-core-*.so"),
        *Path("/usr/lib/systemd").glob("libsystemd-core-*.so"),
    ]
    # Before 250 systemd has them in its program.
    libraries = libraries or [Path("/usr/lib/systemd/systemd")]
    systemd = b"".join(library.read_bytes() for library in libraries)
    assert {"CPUQuotaPerSecUSec", "NRestarts"} <= asked
    assert {name for name in asked if f"{name}\0".encode() not in systemd} == set()


@pytest.mark.programs
def test_every_query_is_promql(tmp_path):
    queries = sorted({query for command in FENCED for query in command.queries()})
    assert len(queries) > 60
    for query in queries:
        assert selectors(query), query
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "q.yaml").write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = promtool("check", "rules", "--lint=none", "q.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_addresses_are_the_settings_defaults():
    site, grafana = Settings().site, Settings().grafana
    known = {
        site.exporter,
        site.alertmanager,
        site.model_server,
        grafana.prometheus_url.removeprefix("http://"),
    }
    known.add(Settings().fleet.query_url.removeprefix("http://").rstrip("/"))
    named = {address for command in FENCED for address in re.findall(r"127\.0\.0\.1:\d+", command.line)}
    assert named <= known
    assert not any(
        PLACEHOLDER.fullmatch(word) for command in FENCED for words in command.programs() for word in words
    )
