"""Manual pages and shell completion of the packages: made from the commands' own help, and read by the real programs."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from helpers.paths import CLONE
from omniwatch import cli
from omniwatch.cli import main

sys.path.insert(0, str(CLONE / "deploy/packaging"))
import manuals
import tree as packages


def pages() -> dict[str, str]:
    both = manuals.pages(of_desk=False) | manuals.pages(of_desk=True)
    return {
        Path(path).name.removesuffix(".1.gz"): gzip.decompress(page).decode() for path, page in both.items()
    }


def commands(group: click.Group, *path: str) -> list[tuple[str, ...]]:
    context = click.Context(group)
    found = [path]
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found += commands(command, *path, name) if isinstance(command, click.Group) else [(*path, name)]
    return found


def test_every_command_has_its_page_with_all_its_options_and_examples():
    found = pages()
    assert set(found) == {"-".join(words) for words in commands(main, "omniwatch")}
    for words in commands(main, "omniwatch"):
        command: click.Command = main
        for word in words[1:]:
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), word) or command
        page = found["-".join(words)].replace("\\-", "-")
        for option in (
            param for param in command.params if isinstance(param, click.Option) and not param.hidden
        ):
            assert f"{option.opts[-1]}" in page, words
        assert ".SH EXAMPLES\n.nf\n" in page
        assert "Example:" not in page


@pytest.mark.programs
def test_the_pages_are_ones_that_troff_reads_without_a_warning():
    for name, page in pages().items():
        done = subprocess.run(
            ["groff", "-man", "-ww", "-Tutf8", "-P-c"], input=page, capture_output=True, text=True, check=True
        )
        assert done.stderr == "", name
        # What is bold is struck twice.
        shown = re.sub(".\b", "", done.stdout)
        assert "EXAMPLES" in shown
        assert "--help" in shown.replace("−", "-").replace("‐", "-")


def test_each_package_gets_the_pages_of_its_own_commands(tmp_path: Path):
    for of_desk in (False, True):
        packages.put_manuals(tmp_path / str(of_desk), of_desk=of_desk)
    names = {
        of_desk: {path.name for path in (tmp_path / str(of_desk)).rglob("*.1.gz")}
        for of_desk in (False, True)
    }
    assert not names[False] & names[True]
    assert {f"omniwatch-{name}.1.gz" for name in cli.DESK_COMMANDS} <= names[True]
    assert {"omniwatch.1.gz", "omniwatch-install.1.gz", "omniwatch-fleet-status.1.gz"} <= names[False]
    for shell in (
        "bash-completion/completions/omniwatch",
        "zsh/vendor-completions/_omniwatch",
        "fish/vendor_completions.d/omniwatch.fish",
    ):
        assert "_OMNIWATCH_COMPLETE" in (tmp_path / "False/usr/share" / shell).read_text()
        assert not (tmp_path / "True/usr/share" / shell).exists()


COMPLETE = """
. "$1"
COMP_WORDS=(omniwatch $2) COMP_CWORD=$3
_omniwatch_completion omniwatch
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("line", "at", "found"),
    [
        ("st", 1, "status"),
        ("uninstall --pu", 2, "--purge"),
        ("fleet st", 2, "status"),
        ("backt", 1, "backtest"),
    ],
)
def test_bash_completes_by_asking_the_installed_program(tmp_path: Path, line: str, at: int, found: str):
    packages.put_manuals(tmp_path, of_desk=False)
    (tmp_path / "bin").mkdir()
    launcher = f"#!{sys.executable}\nfrom omniwatch.cli import main\n\nmain(prog_name='omniwatch')\n"
    (tmp_path / "bin/omniwatch").write_text(launcher)
    (tmp_path / "bin/omniwatch").chmod(0o755)
    script = tmp_path / "usr/share/bash-completion/completions/omniwatch"
    done = subprocess.run(
        ["bash", "-c", COMPLETE, "bash", str(script), line, str(at)],
        env={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found in done.stdout.splitlines()


def test_on_a_device_the_line_of_a_desks_command_is_completed_by_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(cli, "DESK", cli.DEVICE.parent / "not" / "there")
    complete = click.shell_completion.BashComplete(main, {}, "omniwatch", manuals.VARIABLE)
    assert complete.get_completions(["plan"], "") is not None
