"""Follow the links of a bundle's alerts and panels: each has to lead to a file of the same bundle."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from omniwatch.bundle.dashboard_json import Model, panel_name, panels
from omniwatch.settings import LOCAL_GRAFANA, PROJECT_RUNBOOKS

COMMAND = "omniwatch runbook "
"""How a message names the runbook's page where no address of it is set."""
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
    command = address(rule.annotations, "runbook")
    if command and (nowhere := _lost_page(f"{command.removeprefix(COMMAND)}.md", pages)):
        yield f"runbook: {nowhere}"


def unset(rules: list[Rule]) -> Iterator[str]:
    """Yield which addresses the settings lack, by what the alerts of a bundle have in place of a link."""
    dashboards = [address(rule.annotations, "dashboard_url") for rule in rules]
    if rules and not any(url and "/d/omni-fleet" not in url for url in dashboards):
        yield f"grafana.url is not set: messages link no dashboard; a centre's alerts link {LOCAL_GRAFANA}"
    if any("runbook" in rule.annotations for rule in rules):
        yield (
            f"site.runbook_base_url is not set: messages name `{COMMAND}NAME`; a centre's alerts link {PROJECT_RUNBOOKS}"
        )


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
