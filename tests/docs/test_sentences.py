"""Sentences of the manual and the runbooks are short enough to be read once. Code in a sentence counts as one word."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.test_line_length import files, prose_of_page
from helpers.paths import CLONE

MOST_WORDS = 25
PAGES = ("CONTRIBUTING.md", "README.md", "SECURITY.md", "docs/*.md", "runbooks/*.md")
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.) +")
INDENTED = re.compile(r" {4,}\S")
"""Code, where a paragraph begins with it."""
SENTENCE_END = re.compile(r"(?<=[.!?])[)*\"_]*\s+(?=[^a-z]|systemd|vLLM|vm)")


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each paragraph and item."""
    begun, lines, last = 0, list[str](), 0
    for number, line in [*prose_of_page(text), (-1, "")]:
        item = ITEM.match(line)
        if lines and (item or not line.strip() or line.startswith(("#", "<!--")) or number != last + 1):
            if not INDENTED.match(lines[0]):
                yield begun, " ".join(" ".join(lines).split())
            lines = []
        last = number
        if line.strip() and not line.startswith(("#", "<!--")):
            begun = begun if lines else number
            lines.append(line[item.end() :] if item else line)


def sentences(paragraph: str) -> list[str]:
    code_as_a_word = re.sub(r"(`+).+?\1", "`x`", paragraph)
    return SENTENCE_END.split(re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", code_as_a_word))


def too_long(text: str) -> list[tuple[int, str]]:
    found = ((line, sentence) for line, paragraph in paragraphs(text) for sentence in sentences(paragraph))
    return [(line, sentence) for line, sentence in found if len(sentence.split()) > MOST_WORDS]


@pytest.mark.parametrize("path", files(PAGES), ids=lambda path: str(path.relative_to(CLONE)))
def test_no_sentence_is_long(path: Path) -> None:
    assert too_long(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text", ["Word" + " word" * 25 + ".", "- item" + " word" * 13 + "\n  and" + " more" * 12, "a " * 26]
)
def test_a_long_sentence_is_found(text: str) -> None:
    assert len(too_long(f"# Page\n\n{text}\n")) == 1


@pytest.mark.parametrize(
    "text",
    [
        "```\n" + "word " * 30 + "\n```",
        "    " + "word " * 30,
        "| " + "word " * 30 + "|",
        "Word" + " word" * 13 + ". Word" + " word" * 13 + ".",
        "- " + "word " * 13 + "\n- " + "word " * 13,
        "`" + "code " * 30 + "` and [a link](" + "a" * 30 + ")",
    ],
)
def test_code_tables_and_items_are_no_long_sentence(text: str) -> None:
    assert too_long(f"# Page\n\n{text}\n") == []
