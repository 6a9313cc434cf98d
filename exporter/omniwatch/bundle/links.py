"""Follow the links of a bundle's alerts and panels: each has to lead to a file of the same bundle."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from omniwatch.bundle.dashboard_json import Model, panel_name, panels

_TEMPLATE = re.compile(r"\{\{.*?\}\}")


class Rule(msgspec.Struct):
    """An alert of a rules file; a recording rule has no `alert`."""

    alert: str = ""
    annotations: dict[str, Any] = {}


class Group(msgspec.Struct):
    """Rules evaluated together."""

    rules: list[Rule] = []


class RulesFile(msgspec.Struct):
    """As much of Prometheus' rules file as has links."""

    groups: list[Group]


def alerts(files: list[RulesFile]) -> list[Rule]:
    """Return the alerts of all files."""
    return [rule for file in files for group in file.groups for rule in group.rules if rule.alert]


def of_alert(rule: Rule, models: dict[str, Model], pages: Collection[str]) -> Iterator[str]:
    """Yield the links of an alert that lead to no panel of these dashboards (by uid) or to no runbook page (by file name)."""
    dashboard, runbook = (address(rule.annotations, name) for name in ("dashboard_url", "runbook_url"))
    if dashboard and (nowhere := lost(dashboard, models)):
        yield f"dashboard_url: {nowhere}"
    if nowhere := _lost_page(runbook, pages):
        yield f"runbook_url: {nowhere}"


def of_panels(model: Model, models: dict[str, Model], pages: Collection[str]) -> Iterator[str]:
    """Yield the links of a dashboard's panels that lead to no dashboard or runbook page of the bundle."""
    for panel in panels(model):
        overrides = panel.get("fieldConfig", {}).get("overrides", [])
        properties = [entry for override in overrides for entry in override.get("properties", [])]
        of_fields = [link for entry in properties if entry.get("id") == "links" for link in entry["value"]]
        for url in (link.get("url") or "" for link in [*(panel.get("links") or []), *of_fields]):
            if nowhere := _lost_page(url, pages):
                yield f"{panel_name(panel)}: {nowhere}"
            if urlsplit(url).path.startswith("/d/") and (nowhere := lost(url, models)):
                yield f"{panel_name(panel)}: {nowhere}"


def lost(url: str, models: dict[str, Model]) -> str:
    """Return which target of an address such as /d/UID?viewPanel=3 is missing; "" when it leads to a panel or dashboard."""
    parts = urlsplit(url)
    uid = re.search(r"/d/([^/]+)", parts.path)
    if uid is None or uid[1] not in models:
        return f"no dashboard {unquote(uid[1]) if uid else url}"
    for number in parse_qs(parts.query).get("viewPanel", []):
        known = {str(panel.get("id")) for panel in panels(models[uid[1]])}
        if number.removeprefix("panel-") not in known:
            return f"no panel {number} on dashboard {uid[1]}"
    return ""


def address(annotations: dict[str, Any], name: str) -> str:
    """Return the address in an annotation, without what Prometheus fills in."""
    return _TEMPLATE.sub("", str(annotations.get(name) or ""))


def _lost_page(url: str, pages: Collection[str]) -> str:
    page = unquote(urlsplit(url).path.rpartition("/")[2])
    return f"no runbook page {page}" if page.endswith(".md") and page not in pages else ""
