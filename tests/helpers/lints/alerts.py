"""Lint alerts: each has its annotations, its unit tests, its runbook page and a panel."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from helpers.lints import dashboards, runbooks
from omniwatch.bundle import catalogue, links
from omniwatch.bundle.dashboard_json import Model

Parsed = dict[Path, dict[str, Any]]
"""YAML files of a bundle by their path."""

SECTIONS = (runbooks.HEADING, "Meaning", "Impact", "Diagnosis", "Mitigation", "Verification")
"""What a runbook page holds, in this order, each with text."""
HEARTBEAT = "none"
"""The severity of an alert that always fires, to show that alerting works: it cannot be silent."""
ANNOTATIONS = ("summary", "description", "runbook_url", "dashboard_url")
"""What every alert has."""


def of_rules(rules: Parsed) -> list[dict[str, Any]]:
    """Return the alerts of all files."""
    return [rule for file in rules.values() for group in file["groups"] for rule in _alerts(group)]


def lint(rules: Parsed, tests: Parsed, pages: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each alert's problems, with its name; `pages` are the runbooks by file name."""
    cases = [
        case
        for file in tests.values()
        for test in file["tests"]
        for case in test.get("alert_rule_test") or []
    ]
    for rule in of_rules(rules):
        name, severity = rule["alert"], rule.get("labels", {}).get("severity")
        expected = {bool(case.get("exp_alerts")) for case in cases if case["alertname"] == name}
        problems = [*_annotations(rule), *_style(rule)]
        if not severity:
            problems.append("no label severity")
        if True not in expected:
            problems.append("no unit test in which it fires")
        if False not in expected and severity != HEARTBEAT:
            problems.append("no unit test in which it is silent")
        if f"{name}.md" not in pages:
            problems.append(f"no runbook page runbooks/{name}.md")
        yield from ((name, problem) for problem in problems)


def lint_catalogue(rules: Parsed, entries: catalogue.Catalogue) -> Iterator[tuple[str, str]]:
    """Yield each alert that is not in its rule and in the catalogue alike."""
    known = {rule["alert"]: rule for rule in of_rules(rules)}
    for name in sorted(known.keys() - entries.keys()):
        yield name, f"no entry in {catalogue.FILE}"
    for name, entry in entries.items():
        if name not in known:
            yield name, "no rule has this name"
            continue
        said = known[name].get("annotations", {})
        for field in ("summary", "summary_zh"):
            if said.get(field) != getattr(entry, field):
                yield name, f"{field} is not the catalogue's"
        if known[name].get("labels", {}).get("severity") != entry.severity:
            yield name, "severity is not the catalogue's"
        for row in entry.failures:
            if row.cause not in known[name]["expr"]:
                yield name, f"the rule gives no cause {row.cause}"


def lint_pages(rules: Parsed, pages: dict[str, str], models: dict[str, Model]) -> Iterator[tuple[str, str]]:
    """Yield each runbook page's problems, with its file name: held against its alert and that alert's panel."""
    known = {rule["alert"]: rule for rule in of_rules(rules)}
    for name, text in sorted(pages.items()):
        rule = known.get(name.removesuffix(".md"))
        problems = [f'nothing under "{section}"' for section in _missing_sections(text)]
        if rule is None:
            problems.insert(0, "no alert has this name")
        elif not problems:
            problems += runbooks.faults(text, str(rule.get("labels", {}).get("severity") or ""))
            problems += _other_picture(rule, text, models)
        yield from ((name, problem) for problem in problems)


def intervals(rules: Parsed, tests: Parsed) -> Iterator[tuple[str, str]]:
    """Compare the interval at which promtool evaluates with that of groups with alerts, which it ignores."""
    for path, file in tests.items():
        every = file.get("evaluation_interval")
        read = [Path(os.path.normpath(path.parent / name)) for name in file["rule_files"]]
        for group in (group for name in read if name in rules for group in rules[name]["groups"]):
            if group.get("interval") != every and _alerts(group):
                yield (
                    path.name,
                    f'group {group["name"]} every "{group.get("interval")}", tests every "{every}"',
                )


def _alerts(group: dict[str, Any]) -> list[dict[str, Any]]:
    return [rule for rule in group["rules"] if "alert" in rule]


def _annotations(rule: dict[str, Any]) -> Iterator[str]:
    said = rule.get("annotations", {})
    for name in ANNOTATIONS:
        if not str(said.get(name) or "").strip():
            how = ": no panel of a dashboard has it among its `alerts`" if name == "dashboard_url" else ""
            yield f"no annotation {name}{how}"
    page = urlsplit(said.get("runbook_url") or "").path.rpartition("/")[2]
    if page and page != f"{rule['alert']}.md":
        yield f"runbook_url ends in {page}, not in {rule['alert']}.md"
    if said.get("dashboard_url") and not parse_qs(urlsplit(_panel_url(rule)).query).get("viewPanel"):
        yield "dashboard_url names no panel (viewPanel=)"


def _style(rule: dict[str, Any]) -> Iterator[str]:
    summary, description = (
        str(rule.get("annotations", {}).get(name) or "") for name in ("summary", "description")
    )
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", rule["alert"]):
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


def _other_picture(rule: dict[str, Any], text: str, models: dict[str, Model]) -> Iterator[str]:
    named, leads_to = runbooks.picture(text), dashboards.titles(_panel_url(rule), models)
    if named and leads_to and named != leads_to:
        yield 'Picture: {}, panel "{}"; the alert leads to {}, panel "{}"'.format(*named, *leads_to)


def _panel_url(rule: dict[str, Any]) -> str:
    return links.address(rule.get("annotations", {}), "dashboard_url")
