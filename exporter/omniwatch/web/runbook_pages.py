"""The runbooks as pages: rendered when asked for. Links between them stay on the device, links into the manual leave it."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from omniwatch.settings import PROJECT_RUNBOOKS
from omniwatch.web.response import Response
from omniwatch.web.static_files import POLICY

if TYPE_CHECKING:
    from markdown_it.token import Token

PLACE = "/runbooks/"
PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="/static/icon.svg">
<link rel="stylesheet" href="/static/runbook.css">
</head>
<body>
<nav><a href="/">Omniwatch</a> · <a href="/runbooks/">Runbooks</a></nav>
<main>
{body}</main>
</body>
</html>
"""


def names(folder: Path) -> list[str]:
    """Return the runbooks of a folder."""
    return sorted(path.stem for path in folder.glob("*.md"))


def index(folder: Path) -> Response:
    """Return the list of all."""
    items = "".join(f'<li><a href="{PLACE}{name}">{name}</a></li>\n' for name in names(folder))
    return _page("Runbooks", f"<h1>Runbooks</h1>\n<ul>\n{items}</ul>\n")


def page(folder: Path, name: str) -> Response:
    """Return one of them. Raises OSError."""
    return _page(name, render((folder / f"{name}.md").read_text(encoding="utf-8"), names(folder)))


def _page(title: str, body: str) -> Response:
    text = PAGE.format(title=html.escape(title), body=body)
    return Response("200 OK", text.encode(), "text/html; charset=utf-8", [POLICY])


def render(text: str, known: Iterable[str]) -> str:
    """Return a runbook as HTML, in which HTML is text; `known` are the runbooks that links may lead to."""
    # Here, since few ever ask: it takes some 50 ms and 3 MB.
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(text)
    for number, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", slug(tokens[number + 1].content))
        for inner in token.children or ():
            if inner.type == "link_open":
                _lead(inner, frozenset(known))
    return str(reader.renderer.render(tokens, reader.options, {}))


def slug(heading: str) -> str:
    """Return a heading's anchor, as the manual's are made."""
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())


def _lead(link: Token, known: frozenset[str]) -> None:
    """Turn a link between files into one between pages."""
    target, sign, anchor = str(link.attrGet("href") or "").partition("#")
    if not target or "://" in target:
        return
    path = PurePosixPath(target)
    if path.suffix == ".md" and path.parent == PurePosixPath() and path.stem in known:
        link.attrSet("href", f"{PLACE}{path.stem}{sign}{anchor}")
        return
    above = PurePosixPath(PROJECT_RUNBOOKS.partition("://")[2])
    parts = list(above.parts)
    for part in path.parts:
        parts = parts[:-1] if part == ".." else [*parts, part]
    link.attrSet("href", f"https://{'/'.join(parts)}{sign}{anchor}")
