"""Every `omniwatch` command that a page shows can be typed: its options exist and its arguments fit."""

from __future__ import annotations

import shlex

import click
import pytest
from click.testing import CliRunner

from helpers import manual
from omniwatch.cli import main

SHOWN = [(manual.name_of(page), words) for page in manual.PAGES for words in manual.commands(page)]
# What changed once may have changed again since: the changelog names what was.
IN_TEXT = [
    (manual.name_of(page), words)
    for page in manual.PAGES
    if page.name != "CHANGELOG.md"
    for words in manual.commands_in_text(page)
]


def parse(words: list[str]) -> None:
    """Parse a command line as the program would, without running it. Raises click.UsageError."""
    command: click.Command = main
    parent: click.Context | None = None
    rest = list(words)
    while isinstance(command, click.Group):
        context = click.Context(command, info_name=command.name, parent=parent)
        found = command.get_command(context, rest[0]) if rest else None
        if found is None:
            if command.invoke_without_command:
                break
            raise click.UsageError(f"no such command: {words}")
        parent, command, rest = context, found, rest[1:]
    if "--help" not in rest:
        command.make_context(words[0], rest, parent=parent)


def parse_part(words: list[str]) -> None:
    """Check that the command is one and that it has the options named. Raises click.UsageError."""
    command: click.Command = main
    known: set[str] = set()
    for word in words:
        if isinstance(command, click.Group) and not (command.invoke_without_command and word[0] == "-"):
            found = command.get_command(click.Context(command), word)
            if found is None:
                raise click.UsageError(f"no such command: {words}")
            command = found
            known = {name for param in command.params for name in param.opts} | {"--help"}
        elif word.startswith("--") and word.split("=")[0] not in known:
            raise click.UsageError(f"no such option: {word}")


def shown_as(value: object) -> str:
    return shlex.join(value)[:70] if isinstance(value, list) else str(value)


@pytest.mark.parametrize(("page", "words"), SHOWN, ids=shown_as)
def test_commands_in_blocks_parse(page, words):
    parse(words)


@pytest.mark.parametrize(("page", "words"), IN_TEXT, ids=shown_as)
def test_commands_in_sentences_exist(page, words):
    parse_part(words)


def test_there_are_commands_on_the_pages():
    assert len(SHOWN) > 100
    assert {page for page, _ in SHOWN} >= {
        "README.md",
        "docs/install.md",
        "docs/zh/install.md",
        "docs/commands.md",
    }
    assert len(IN_TEXT) > 20


@pytest.mark.parametrize(
    "line", ["instal", "install --dif", "render --out", "fleet statu", "simulate --seed one", "status now"]
)
def test_a_wrong_command_is_found(line):
    with pytest.raises(click.UsageError):
        parse(line.split())


@pytest.mark.parametrize("line", ["instal", "install --dif", "fleet statu"])
def test_a_wrong_command_in_a_sentence_is_found(line):
    with pytest.raises(click.UsageError):
        parse_part(line.split())


def run(*words: str) -> str:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 0, (words, result.output)
    return result.output


def test_incident_commands_run(tmp_path, monkeypatch):
    """The simulated incident of docs/incidents.md, up to what needs a Prometheus."""
    monkeypatch.chdir(tmp_path)
    page = manual.ROOT / "docs" / "incidents.md"
    block = next(block for block in manual.blocks(page) if "simulate --list" in block.text)
    lines = [shlex.split(line)[1:] for line in block.text.splitlines()]
    ran = [run(*words) for words in lines if words[0] != "backtest"]
    assert len(ran) == 4
    assert "CodecDrift" in ran[2]
    assert "omni_codec_drift_ms" in ran[3]


def test_conversation_of_the_contract_is_valid(tmp_path):
    """The example of docs/events.md is read without an invalid line."""
    page = manual.ROOT / "docs" / "events.md"
    text = next(block.text for block in manual.blocks(page) if block.language == "json")
    file = tmp_path / "call.jsonl"
    file.write_text(text, encoding="utf-8")
    assert "invalid" not in run("replay", str(file))
    metrics = run("replay", str(file), "--metrics")
    assert 'omniwatch_events_total{ev="audio",' in metrics or 'ev="audio"' in metrics
    assert not [
        line
        for line in metrics.splitlines()
        if line.startswith("omniwatch_events_invalid_total{") and not line.endswith(" 0.0")
    ]


@pytest.mark.parametrize(
    "words",
    [["runbook", "CodecDrift"], ["render", "streaming.json"], ["simulate", "--list"], ["link", "--list"]],
    ids=shlex.join,
)
def test_cheap_commands_run(words):
    assert words in [shown for _, shown in SHOWN] or [*words, ">"] in [shown[:3] for _, shown in SHOWN]
    assert run(*words)
