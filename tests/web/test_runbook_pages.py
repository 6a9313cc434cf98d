"""The runbooks as pages: no dead link, no HTML of a writer's, nothing inline."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.paths import CLONE
from helpers.web_calls import Page, call, pages
from omniwatch.settings import PROJECT_RUNBOOKS
from omniwatch.web import make_app, runbook_pages

FOLDER = CLONE / "runbooks"
NAMES = runbook_pages.names(FOLDER)
PUBLISHED = PROJECT_RUNBOOKS.removesuffix("runbooks")


def anchors(text: str) -> set[str]:
    return {*re.findall(r'<h\d id="([^"]*)"', text)}


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    app = make_app(pages(runbooks=FOLDER))
    return {f"/runbooks/{name}": call(app, f"/runbooks/{name}").text for name in NAMES}


def test_each_is_there_and_the_list_leads_to_each(texts: dict[str, str]) -> None:
    app = make_app(pages(runbooks=FOLDER))
    listed = [link for link in Page(call(app, "/runbooks/").text).links if link.startswith("/runbooks/")]
    assert [*texts] == listed[1:]
    assert len(texts) > 30
    assert all('<h2 id="first-60-seconds">' in text for text in texts.values())
    for path in ("/runbooks/None", "/runbooks/../SECURITY", "/runbooks/CodecDrift.md"):
        assert call(app, path).status == 404


def test_no_link_is_dead(texts: dict[str, str]) -> None:
    links = {(path, link) for path, text in texts.items() for link in Page(text).links}
    dead = []
    for path, link in sorted(links):
        target, _, anchor = link.partition("#")
        if target.startswith("/runbooks/") and target != "/runbooks/":
            alive = target in texts and (not anchor or anchor in anchors(texts[target]))
        elif target.startswith(PUBLISHED):
            alive = (CLONE / target.removeprefix(PUBLISHED)).is_file()
        else:
            alive = (
                target in ("/", "/runbooks/")
                or target.startswith("https://")
                or anchor in anchors(texts[path])
            )
        if not alive:
            dead.append((path, link))
    assert dead == []
    assert ("/runbooks/CodecDrift", "/runbooks/") in links


def test_links_stay_on_the_device_or_go_to_the_manual(tmp_path: Path) -> None:
    text = "[a](B.md#load) [b](../docs/fleet.md#x) [c](https://x.test/) [d](#here) [e](javascript:alert(1)) [f](Gone.md)"
    assert Page(runbook_pages.render(text, ["B"])).links == [
        "/runbooks/B#load",
        f"{PUBLISHED}docs/fleet.md#x",
        "https://x.test/",
        "#here",
        f"{PROJECT_RUNBOOKS}/Gone.md",
    ]


def test_html_in_a_page_is_text(tmp_path: Path) -> None:
    (tmp_path / "Evil.md").write_text("# <script>alert(1)</script>\n\n<img src=x onerror=alert(1)> `<b>`\n")
    reply = call(make_app(pages(runbooks=tmp_path)), "/runbooks/Evil")
    assert not {"script", "img", "b"} & {*Page(reply.text).tags}
    assert "unsafe" not in reply.headers["Content-Security-Policy"]
    assert not re.search(r"<style|style=", reply.text)
