"""Every link of the manual, the README and the runbooks leads somewhere."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest

from helpers import manual

each_page = pytest.mark.parametrize("page", manual.PAGES, ids=manual.name_of)


def broken(page: Path) -> list[str]:
    found = []
    for link in manual.links(page):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in manual.anchors(target)):
            found.append(link)
    return found


@each_page
def test_links_resolve(page):
    assert broken(page) == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A title\n\n[a](none.md) [b](#a-title) [c](#other) `[d](code.md)`\n")
    assert broken(page) == ["none.md", "#other"]


def test_readme_is_short():
    assert len((manual.ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_navigation_has_every_page():
    """A page that the README does not name is named by the manual's index."""
    readme = manual.ROOT / "README.md"
    index = manual.ROOT / "docs" / "index.md"
    named = {
        (page.parent / link.split("#")[0]).resolve()
        for page in (readme, index)
        for link in manual.links(page)
    }
    entries = {
        (index.parent / f"{line}.md").resolve()
        for block in index.read_text(encoding="utf-8").split("```{toctree}")[1:]
        for line in block.split("```")[0].split()
    }
    pages = set((manual.ROOT / "docs").rglob("*.md")) - {index}
    assert sorted(map(manual.name_of, pages - named - entries)) == []
