"""Check that an alert has everything that belongs to it: annotations, unit tests, a runbook page and a panel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from omniwatch.bundle import dashboard_lint, runbook_lint

SECTIONS = (runbook_lint.HEADING, "Meaning", "Impact", "Diagnosis", "Mitigation", "Verification")
"""What a runbook page holds, in this order, each with text."""
HEARTBEAT = "none"
"""The severity of an alert that always fires, to show that alerting works: it cannot be silent."""
ANNOTATIONS = ("summary", "description", "runbook_url", "dashboard_url")
"""What every alert has."""
_TEMPLATE = re.compile(r"\{\{.*?\}\}")


class Rule(msgspec.Struct):
    """An alert of a rules file; a recording rule has no `alert`."""

    alert: str = ""
    labels: dict[str, Any] = {}
    annotations: dict[str, Any] = {}


class Group(msgspec.Struct):
    """Rules evaluated together."""

    name: str
    interval: str = ""
    rules: list[Rule] = []


class RulesFile(msgspec.Struct):
    """As much of Prometheus' rules file as is looked at here."""

    groups: list[Group]


class Case(msgspec.Struct):
    """One expectation: which alerts of a name fire at a time."""

    alertname: str
    exp_alerts: list[Any] | None = None


class Test(msgspec.Struct):
    """One series of samples and what is expected of it."""

    alert_rule_test: list[Case] | None = None


class TestFile(msgspec.Struct):
    """As much of promtool's unit test file as is looked at here."""

    rule_files: list[str]
    tests: list[Test]
    evaluation_interval: str = ""


def alerts(rules: list[RulesFile]) -> list[Rule]:
    """Return the alerts of all files."""
    return [rule for file in rules for group in file.groups for rule in group.rules if rule.alert]


def of_alerts(
    rules: list[RulesFile], tests: list[TestFile], runbooks: Path
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each alert with what is wrong with it and what is only style: annotations, tests, page."""
    cases = [case for file in tests for test in file.tests for case in test.alert_rule_test or []]
    for rule in alerts(rules):
        expected = {bool(case.exp_alerts) for case in cases if case.alertname == rule.alert}
        wrong = list(_annotations(rule))
        if True not in expected:
            wrong.append("no unit test in which it fires")
        if False not in expected and rule.labels.get("severity") != HEARTBEAT:
            wrong.append("no unit test in which it is silent")
        if not (runbooks / f"{rule.alert}.md").is_file():
            wrong.append(f"no runbook page runbooks/{rule.alert}.md")
        yield rule.alert, wrong, list(_style(rule))


def of_pages(rules: list[RulesFile], runbooks: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each runbook page's file name with what is amiss with it. Raises OSError."""
    severities = {rule.alert: str(rule.labels.get("severity") or "") for rule in alerts(rules)}
    for page in sorted(runbooks.glob("*.md")):
        text = page.read_text(encoding="utf-8", errors="replace")
        style = [f'nothing under "{section}"' for section in _missing_sections(text)]
        if page.stem not in severities:
            style.insert(0, "no alert has this name")
        elif not style:
            style += runbook_lint.faults(text, severities[page.stem])
        yield page.name, style


def lost_alerts(rules: list[RulesFile], models: dict[str, dashboard_lint.Model]) -> Iterator[tuple[str, str]]:
    """Yield each alert whose dashboard_url leads to no panel of these dashboards (by uid), with why."""
    for rule in alerts(rules):
        address = _address(rule)
        if not address:
            continue
        if nowhere := dashboard_lint.lost(address, models):
            yield rule.alert, nowhere
        elif not parse_qs(urlsplit(address).query).get("viewPanel"):
            yield rule.alert, "names no panel (viewPanel=)"


def other_pictures(
    rules: list[RulesFile], models: dict[str, dashboard_lint.Model], runbooks: Path
) -> Iterator[tuple[str, str]]:
    """Yield each runbook page whose picture is not the panel that its alert leads to, with both. Raises OSError."""
    for rule in alerts(rules):
        page = runbooks / f"{rule.alert}.md"
        if not page.is_file():
            continue
        named = runbook_lint.picture(page.read_text(encoding="utf-8", errors="replace"))
        leads_to = dashboard_lint.titles(_address(rule), models)
        if named and leads_to and named != leads_to:
            yield (
                page.name,
                'Picture: {}, panel "{}"; the alert leads to {}, panel "{}"'.format(*named, *leads_to),
            )


def _address(rule: Rule) -> str:
    """Return where an alert leads to, without what Prometheus fills in."""
    return _TEMPLATE.sub("", str(rule.annotations.get("dashboard_url") or ""))


def _annotations(rule: Rule) -> Iterator[str]:
    if not rule.labels.get("severity"):
        yield "no label severity"
    for name in ANNOTATIONS:
        if not str(rule.annotations.get(name) or "").strip():
            how = ": no panel of a dashboard has it among its `alerts`" if name == "dashboard_url" else ""
            yield f"no annotation {name}{how}"
    page = urlsplit(str(rule.annotations.get("runbook_url") or "")).path.rpartition("/")[2]
    if page and page != f"{rule.alert}.md":
        yield f"runbook_url ends in {page}, not in {rule.alert}.md"


def _style(rule: Rule) -> Iterator[str]:
    summary, description = (str(rule.annotations.get(name) or "") for name in ("summary", "description"))
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", rule.alert):
        yield "the name is not in CamelCase"
    if summary and ("{{" in summary or not re.fullmatch(r"[A-Z].*\.", summary)):
        yield "the summary is not a plain sentence: a capital first, a full stop last, no template"
    if description and "$value" not in description:
        yield "the description does not say the value"


def _missing_sections(text: str) -> list[str]:
    """Return the sections that a runbook page does not have or leaves empty."""
    parts = re.split(r"^## +(.+?) *$", text, flags=re.MULTILINE)[1:]
    filled = {title for title, body in zip(parts[::2], parts[1::2], strict=True) if body.strip()}
    return [section for section in SECTIONS if section not in filled]
