"""Lines of prose are at most 140 characters long: pages, docstrings and comments. Tables, code and addresses may be longer."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.paths import CLONE

LONGEST = 140
PAGES = ("*.md", "docs/**/*.md", "runbooks/*.md")
RUNBOOK_FACTS = "Severity: "
"""How the line begins that names a runbook's facts; programs read it, so it stays one line."""
CODE = (".ci/*.py", "docs/*.py", "exporter/**/*.py", "tests/**/*.py")


def files(patterns: tuple[str, ...]) -> list[Path]:
    return sorted({path for pattern in patterns for path in CLONE.glob(pattern)})


def prose_of_page(text: str) -> Iterator[tuple[int, str]]:
    """Lines outside of code blocks, tables and generated parts."""
    inside = None
    for number, line in enumerate(text.splitlines(), 1):
        fence = re.match(r"\s*(```|~~~|:::)", line)
        generated = re.match(r"<!-- (generated:|end of )", line)
        if inside == "code":
            inside = None if fence else inside
        elif inside == "generated":
            inside = None if generated else inside
        elif fence or generated:
            inside = "code" if fence else "generated"
        elif not line.lstrip().startswith(("|", "![", RUNBOOK_FACTS)):
            yield number, line


def prose_of_code(text: str) -> Iterator[tuple[int, str]]:
    """Lines of docstrings, also of those below a name, and comments."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            assert node.end_lineno is not None
            for number in range(node.lineno, node.end_lineno + 1):
                yield number, lines[number - 1]
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and re.search(r"# (?!type:|noqa|fmt:)", token.string):
            yield token.start[0], token.string if token.line.strip() != token.string else token.line.rstrip()


def too_long(path: Path) -> list[int]:
    """The numbers of the lines that are."""
    text = path.read_text(encoding="utf-8")
    prose = prose_of_page(text) if path.suffix == ".md" else prose_of_code(text)
    return sorted({number for number, line in prose if len(line) > LONGEST and "://" not in line})


@pytest.mark.parametrize("patterns", [PAGES, CODE], ids=["pages", "code"])
def test_lines_of_prose_are_not_too_long(patterns: tuple[str, ...]) -> None:
    lines = ((str(path.relative_to(CLONE)), number) for path in files(patterns) for number in too_long(path))
    assert [f"{name}:{number}" for name, number in lines] == []


def test_what_counts_as_prose(tmp_path: Path) -> None:
    long = "word " * 30
    page = tmp_path / "page.md"
    page.write_text(f"{long}\n\n```sh\n{long}\n```\n| {long} |\nsee https://host/{long}\n- {long}\n")
    assert too_long(page) == [1, 8]
    code = tmp_path / "code.py"
    code.write_text(f'"""{long}"""\nx = "{long}"  # short\n# {long}\ny = 1\n"""{long}"""\n')
    assert too_long(code) == [1, 3, 5]
