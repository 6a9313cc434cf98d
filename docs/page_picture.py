"""Draw a page as the person on call sees it: the words are those that promtool holds the rule to, laid out as in a chat."""

from __future__ import annotations

import textwrap
from html import escape
from pathlib import PurePosixPath
from typing import Any

import yaml

from omniwatch.bundle import render
from omniwatch.settings import Settings

STYLE = """
text { font: 15px sans-serif; fill: #1f2933 }
.title { font-weight: bold }
.small { font-size: 13px; fill: #616e7c }
"""
WIDTH, LINE, COLUMNS = 680, 24, 74


def _page() -> dict[str, Any]:
    """Return the first CodecDrift that the rules' unit tests expect to fire."""
    tests = yaml.safe_load(render.render(Settings())[PurePosixPath("alerts/streaming.test.yaml")])["tests"]
    return next(
        alert
        for test in tests
        for case in test["alert_rule_test"]
        if case["alertname"] == "CodecDrift"
        for alert in case["exp_alerts"]
    )


def picture() -> str:
    """Return the picture as SVG. The same rules give the same bytes."""
    page = _page()
    said = page["exp_annotations"]
    device = page["exp_labels"].get("device", Settings().site.device)
    lines = [("title", f"[FIRING] CodecDrift on {device}")]
    lines += [("", line) for line in textwrap.wrap(said["description"], COLUMNS)]
    lines += [("", said["summary_zh"]), ("small", f"Runbook: {said['runbook']}")]
    tall = 2 * 20 + len(lines) * LINE
    body = "".join(
        f'<text x="44" y="{40 + i * LINE}" class="{kind}">{escape(text)}</text>\n'
        for i, (kind, text) in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {tall}" role="img" aria-label="A page in a chat">\n'
        f"<style>{STYLE}</style>\n"
        f'<rect x="1" y="1" width="{WIDTH - 2}" height="{tall - 2}" rx="8" fill="#ffffff" stroke="#cbd2d9"/>\n'
        f'<rect x="20" y="18" width="5" height="{tall - 36}" rx="2" fill="#c0392b"/>\n{body}</svg>\n'
    )
