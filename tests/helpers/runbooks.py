"""What the runbook pages tell a person to type: the command of the head and the fenced ones, a line each, and those within the text."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from omniwatch.bundle import data

PAGES = sorted((data.root() / "runbooks").glob("*.md"))
QUERY = re.compile(
    r"promtool query instant http://127\.0\.0\.1:9090 '([^']+)'|--data-urlencode 'query=([^']+)'"
)
OPERATORS = {"|", "||", "&&", ";", ">", ">>", "<"}
PLACEHOLDER = re.compile(r"[A-Z]{3,}")


class Command(NamedTuple):
    """One line of a page."""

    page: str
    line: str

    def programs(self) -> list[list[str]]:
        """Return the words of each program of a pipeline, those in $( ) included."""
        inner = re.findall(r"\$\(([^()]+)\)", self.line)
        return [words for text in (self.line, *inner) for words in _pipeline(text)]

    def queries(self) -> list[str]:
        """Return the PromQL that is asked."""
        return [one or other for one, other in QUERY.findall(self.line)]


def _pipeline(text: str) -> list[list[str]]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    skip = False
    for word in lexer:
        if word in OPERATORS:
            skip = word in {">", ">>", "<"}
            if not skip:
                found.append([])
        elif not skip:
            found[-1].append(word)
        else:
            skip = False
    return [words for words in found if words]


def fenced() -> list[Command]:
    """Return the command of every head and every line of every fenced block, in order."""
    typed = r"(?<=^- \*\*Command:\*\* `)[^`\n]+(?=`$)|(?<=^```sh\n).*?(?=^```$)"
    return [
        Command(page.stem, line)
        for page in PAGES
        for block in re.findall(typed, page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
        if line.strip()
    ]


def inline() -> list[Command]:
    """Return the commands within the text: of `omniwatch` and of systemd."""
    return [
        Command(page.stem, text)
        for page in PAGES
        for text in re.findall(r"`((?:omniwatch|systemctl|journalctl) [a-z][^`]*)`", page.read_text())
    ]
