"""Sentences of help texts are short enough to be read once."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from omniwatch.cli import main

MOST_WORDS = 25
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for sub in command.list_commands(context):
            found = command.get_command(context, sub)
            assert found is not None
            yield from commands(found, f"{name} {sub}")


def texts() -> Iterator[tuple[str, str]]:
    """The help of each command and of each of its options."""
    for name, command in commands(main, "omniwatch"):
        yield name, command.help or ""
        for option in command.params:
            yield f"{name} {option.opts[0]}", getattr(option, "help", None) or ""


def sentences(text: str) -> Iterator[str]:
    """Those of the paragraphs; examples, which begin with \\b, have none."""
    for paragraph in re.split(r"\n\s*\n", text):
        if "\b" not in paragraph:
            yield from SENTENCE_END.split(" ".join(paragraph.split()))


def test_no_sentence_of_a_help_text_is_long() -> None:
    found = [(where, sentence) for where, text in texts() for sentence in sentences(text)]
    assert len(found) > 300, "the help texts are found"
    assert [one for one in found if len(one[1].split()) > MOST_WORDS] == []
