"""Each text that the live page asks for by name is there."""

from __future__ import annotations

import re

from helpers.paths import CLONE
from omniwatch.web import words

WEB = CLONE / "exporter/omniwatch/web"


def test_every_text_that_the_page_names_is_there() -> None:
    script = (WEB / "static/live.js").read_text(encoding="utf-8")
    template = (WEB / "landing.html").read_text(encoding="utf-8")
    named = set(re.findall(r'data-words="([^"]+)"', template)) | set(
        re.findall(r'"(page\.[a-z.-]+)"', script)
    )
    columns = re.findall(r"const (?:LISTENER|SOURCE) = \[(.*)\];", script)
    named |= {f"page.{name}" for row in columns for name in re.findall(r'"(\w+)"', row)}
    named |= {f"page.device.{name}" for name in re.findall(r'label\("(\w+)"\)', script)}
    named |= {f"page.{name}" for name in re.findall(r'\bsay\("(\w+)"', script)}
    assert len(columns) == 2
    assert len(named) > 50
    assert named - words.load()["en"].keys() == set()
