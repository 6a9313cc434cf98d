"""The manual's pages as tests read them: their links, their blocks, the commands they show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "runbooks").glob("*.md"),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    ]
)
"""Every page that a person reads."""
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)\s>]+)>?\)")
_INLINE = re.compile(r"`([^`\n]+)`")
OPERATORS = {"|", "||", "&&", ";", ">", ">>", "<", "&"}


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    language: str
    text: str


def name_of(page: Path) -> str:
    """Return a page's path in the repository."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    return [
        Block(page, language, text) for language, text in _FENCE.findall(page.read_text(encoding="utf-8"))
    ]


def prose(page: Path) -> str:
    """Return a page without its blocks and its code."""
    return _INLINE.sub("", _FENCE.sub("", page.read_text(encoding="utf-8")))


def links(page: Path) -> list[str]:
    """Return where the links and pictures of a page lead."""
    return _LINK.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words of each `omniwatch …` in the blocks of a page, without `omniwatch` itself."""
    for block in blocks(page):
        if block.language in ("sh", ""):
            for line in _lines(block.text):
                yield from _of_line(line)


def commands_in_text(page: Path) -> Iterator[list[str]]:
    """Yield those within sentences, which may leave out what the sentence says."""
    for text in _INLINE.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"(sudo )?omniwatch [a-z]", text):
            yield from _of_line(text)


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.replace("\\\n", " ").splitlines()]


def _of_line(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    try:
        words = list(lexer)
    except ValueError as error:
        raise AssertionError(f"no shell reads: {line}") from error
    program: list[str] = []
    for word in [*words, ";"]:
        if word not in OPERATORS:
            program.append(word)
            continue
        found = program[1:] if program[:1] == ["sudo"] else program
        if found and Path(found[0]).name == "omniwatch" and found[0] != "omniwatch/":
            yield found[1:]
        program = []
