"""Each limit, wait and time of the rules beyond the contract: their unit tests notice where it is a step off."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from helpers.bundles import SUBJECTS, changed_settings, failing, rendered
from omniwatch.bundle import render
from omniwatch.bundle.yaml_text import load_yaml
from omniwatch.desk.durations import seconds
from omniwatch.settings import Settings

MOST = 7
"""Comparisons with a number other than 0 that one rule has at most."""
COMPARED = re.compile(r"(>=|>|<) (\d+(?:\.\d+)?)(?=[\s,]|$)")


def nudged(expr: str, index: int, sign: int) -> str | None:
    """Return an expression whose comparison number `index` with a number other than 0 is a step off; None if it has none."""
    found = [match for match in COMPARED.finditer(expr) if float(match[2])]
    if index >= len(found):
        return None
    match = found[index]
    value = float(match[2])
    step = 1 if match[1] == ">=" else 0.2 if value > 1 else 0.011
    return f"{expr[: match.start(2)]}{value + sign * step:g}{expr[match.end(2) :]}"


def failing_alerts(directory: Path, subject: str, only: Collection[str] | None = None) -> set[str]:
    found: set[str] = set()
    told_by = records(directory, subject)
    for done in failing(directory, subject, only, annotations=False):
        said = done.stdout + done.stderr
        found |= set(re.findall(r"alertname: ?(\w+)", said))
        found |= {alert for record, alert in told_by.items() if f"({record}{{cause=" in said}
        if found and found >= set(only or ()):
            break
    return found


def rules_of(directory: Path, subject: str) -> dict[str, Any]:
    return load_yaml((directory / f"alerts/{subject}.rules.yaml").read_text())


def records(directory: Path, subject: str) -> dict[str, str]:
    """What is recorded, and the alert that comes after it."""
    found, alert = {}, ""
    for rule in reversed(rules_of(directory, subject)["groups"][0]["rules"]):
        alert = rule.get("alert", alert)
        if "record" in rule:
            found[rule["record"]] = alert
    return found


def limits() -> list[tuple[str, int]]:
    """The subjects, and the places that a limit has in one of their rules."""
    bundle = render.render(Settings())
    return [
        (subject, index)
        for subject in SUBJECTS
        for index in range(MOST)
        for rules in [load_yaml(bundle[PurePosixPath(f"alerts/{subject}.rules.yaml")])]
        if any(nudged(rule["expr"], index, 1) for group in rules["groups"] for rule in group["rules"])
    ]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("subject", "index"), limits())
def test_the_unit_tests_notice_each_limit_that_is_a_step_off(tmp_path, subject, index, sign):
    rules = rules_of(rendered(tmp_path), subject)
    wrong = set()
    alert = ""
    for rule in reversed(rules["groups"][0]["rules"]):
        alert = rule.get("alert", alert)  # what is recorded is for the alert after it
        expr = nudged(rule["expr"], index, sign)
        if expr is not None:
            rule["expr"] = expr
            wrong.add(alert)
    (tmp_path / f"alerts/{subject}.rules.yaml").write_text(json.dumps(rules))
    assert failing_alerts(tmp_path, subject, wrong) == wrong


def test_no_rule_has_more_limits_than_are_looked_at(tmp_path):
    directory = rendered(tmp_path)
    rules = [rule for subject in SUBJECTS for rule in rules_of(directory, subject)["groups"][0]["rules"]]
    assert {nudged(rule["expr"], MOST, 1) for rule in rules} == {None}
    assert any(nudged(rule["expr"], MOST - 1, 1) for rule in rules)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("subject", ["early", "server", "sidecar", "monitoring"])
def test_the_unit_tests_notice_each_wait_that_is_an_evaluation_off(tmp_path, subject, sign):
    rules = rules_of(rendered(tmp_path), subject)
    evaluation_s = seconds(rules["groups"][0]["interval"])
    wrong = set()
    for rule in rules["groups"][0]["rules"]:
        if "for" in rule:
            rule["for"] = f"{seconds(rule['for']) + evaluation_s * sign:g}s"
            wrong.add(rule["alert"])
    (tmp_path / f"alerts/{subject}.rules.yaml").write_text(json.dumps(rules))
    assert wrong
    assert failing_alerts(tmp_path, subject, wrong) == wrong


STEPS = {
    "model_server": {"down_for_s": 5},
    "sidecar": {"down_for_s": 5, "blind_for_s": 5, "idle_window_s": 15},
}
"""How little each time within an expression may be off before a unit test must notice."""


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("group", "field", "step"),
    [(group, field, step) for group, fields in STEPS.items() for field, step in fields.items()],
)
def test_the_unit_tests_notice_each_time_that_is_a_step_off(tmp_path, group, field, step, sign):
    value = getattr(getattr(Settings(), group), field)
    wrong = rendered(tmp_path / "wrong", changed_settings(group, **{field: value + sign * step}))
    subject = {"sidecar": "sidecar", "model_server": "server"}[group]
    rules = f"alerts/{subject}.rules.yaml"
    (rendered(tmp_path) / rules).write_text((wrong / rules).read_text())
    assert failing_alerts(tmp_path, subject)
