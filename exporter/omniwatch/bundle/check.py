"""Check a rendered bundle: with promtool and amtool where they are installed, and for what those do not look at."""

from __future__ import annotations

import enum
import fnmatch
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from omniwatch.bundle import dashboard_lint
from omniwatch.bundle.render import Files, write

TOOL_TIMEOUT_S = 120.0
SECTIONS = ("Meaning", "Impact", "Diagnosis", "Mitigation", "How to know it is mended")
"""What a runbook page holds, in this order, each with text."""
HEARTBEAT = "none"
"""The severity of an alert that always fires, to show that alerting works: it cannot be silent."""
Find = Callable[[str], str | None]
"""Where a tool is installed: shutil.which, or a test's own."""


class Status(enum.Enum):
    """What came of a check; the value is the word that a line begins with."""

    OK = "SUCCESS"
    LINT = "LINT"
    FAILED = "FAILED"
    ABSENT = "SKIPPED"


class Result(msgspec.Struct, frozen=True):
    """One check: the first line of `detail` says what was wrong, the others are a tool's own words."""

    status: Status
    check: str
    subject: str
    detail: str = ""

    def __str__(self) -> str:
        first, *rest = self.detail.splitlines() or [""]
        line = f"{self.status.value}: {self.check}: {self.subject}" + (f": {first}" if first else "")
        return "\n".join([line, *(f"  {text}" for text in rest)])


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

    alert_rule_test: list[Case] = []


class TestFile(msgspec.Struct):
    """As much of promtool's unit test file as is looked at here."""

    rule_files: list[str]
    tests: list[Test]
    evaluation_interval: str = ""


def check(directory: Path, find: Find = shutil.which, *, unit_tests: bool = True) -> list[Result]:
    """Check what `omniwatch render --out` wrote to `directory`. What is wrong is in the results; raises OSError.

    The rules' unit tests take seconds; without them all is checked that has to hold for a file to be of use.
    """
    next(directory.iterdir(), None)  # glob() takes a directory that cannot be read for an empty one
    rules = sorted(directory.glob("alerts/**/*.rules.yaml"))
    tests = sorted(directory.glob("alerts/**/*.test.yaml"))
    configs = sorted(directory.glob("deploy/**/*.y*ml"))
    if not rules:
        return [Result(Status.FAILED, "rules", str(directory), "no alerts/*.rules.yaml here")]
    results: list[Result] = []
    parsed: dict[Path, Any] = {}
    for path in (*rules, *tests, *configs):
        name = str(path.relative_to(directory))
        try:
            parsed[path] = _read(path)
        except (yaml.YAMLError, ValueError) as error:
            results.append(Result(Status.FAILED, "YAML", name, " ".join(str(error).split())))
        else:
            results.append(Result(Status.OK, "YAML", name))
    if exit_code(results):
        return results
    return [
        *results,
        *_tools(directory, rules, tests if unit_tests else [], configs, find),
        *_pairs([parsed[path] for path in rules], [parsed[path] for path in tests], directory / "runbooks"),
        *_intervals({path: parsed[path] for path in rules}, {path: parsed[path] for path in tests}),
        *_dashboards(directory, [parsed[path] for path in rules], find),
    ]


def check_files(files: Files, find: Find = shutil.which, *, unit_tests: bool = True) -> list[Result]:
    """Check a rendered bundle before it is anywhere, in a directory made for that. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="omniwatch-") as directory:
        write(files, Path(directory))
        return check(Path(directory), find, unit_tests=unit_tests)


def exit_code(results: Iterable[Result]) -> int:
    """As promtool's: 0 when all is well, 1 when something failed, 3 when there is only lint."""
    found = {result.status for result in results}
    return 1 if Status.FAILED in found else 3 if Status.LINT in found else 0


def _read(path: Path) -> Any:
    """Parse a YAML file, as what its name says it is. Raises YAMLError or ValueError."""
    raw = yaml.safe_load(path.read_bytes())
    if path.name.endswith(".rules.yaml"):
        return msgspec.convert(raw, RulesFile)
    if path.name.endswith(".test.yaml"):
        return msgspec.convert(raw, TestFile)
    return raw


def _tools(
    directory: Path, rules: list[Path], tests: list[Path], configs: list[Path], find: Find
) -> Iterator[Result]:
    commands = [
        (["promtool", "check", "rules", "--lint=all", "--lint-fatal"], rules),
        (["promtool", "test", "rules"], tests),
        (["promtool", "check", "config"], [path for path in configs if path.stem == "prometheus"]),
        (["amtool", "check-config"], [path for path in configs if path.stem == "alertmanager"]),
    ]
    for command, paths in commands:
        title = " ".join(word for word in command if not word.startswith("-"))
        for path in paths:
            name = str(path.relative_to(directory))
            tool = find(command[0])
            if tool is None:
                yield Result(Status.ABSENT, title, name, f"{command[0]} is not installed")
            else:
                status, words = _run([tool, *command[1:], name], directory)
                yield Result(status, title, name, words)


def _run(command: list[str], directory: Path) -> tuple[Status, str]:
    """Run a tool that says with its exit code how it went: 0 well, 3 lint, else failed. Its words only when not well."""
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Status.FAILED, f"no answer within {TOOL_TIMEOUT_S:.0f} s"
    except OSError as error:
        return Status.FAILED, f"{command[0]}: {error.strerror}"
    if done.returncode == 0:
        return Status.OK, ""
    words = "\n".join(line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip())
    return Status.LINT if done.returncode == 3 else Status.FAILED, f"exit code {done.returncode}\n{words}"


def _pairs(rules: list[RulesFile], tests: list[TestFile], runbooks: Path) -> Iterator[Result]:
    """Hold every alert against its annotations, its tests and its runbook page, and every page against the alerts."""
    alerts = [rule for file in rules for group in file.groups for rule in group.rules if rule.alert]
    cases = [case for file in tests for test in file.tests for case in test.alert_rule_test]
    pages = {page.stem: page for page in sorted(runbooks.glob("*.md"))}
    for rule in alerts:
        expected = {bool(case.exp_alerts) for case in cases if case.alertname == rule.alert}
        wrong = list(_annotations(rule))
        if True not in expected:
            wrong.append("no unit test in which it fires")
        if False not in expected and rule.labels.get("severity") != HEARTBEAT:
            wrong.append("no unit test in which it is silent")
        if rule.alert not in pages:
            wrong.append(f"no runbook page runbooks/{rule.alert}.md")
        yield from _verdict("alert", rule.alert, wrong, list(_style(rule)))
    named = {rule.alert for rule in alerts}
    for name, page in pages.items():
        style = [] if name in named else ["no alert has this name"]
        style += [f'nothing under "{section}"' for section in _missing_sections(page)]
        yield from _verdict("runbook", page.name, [], style)


def _verdict(check: str, subject: str, wrong: list[str], style: list[str]) -> list[Result]:
    """Return a line for each problem, or the one that says that there is none."""
    found = [(Status.FAILED, problem) for problem in wrong] + [(Status.LINT, problem) for problem in style]
    return [Result(status, check, subject, problem) for status, problem in found or [(Status.OK, "")]]


def _annotations(rule: Rule) -> Iterator[str]:
    if not rule.labels.get("severity"):
        yield "no label severity"
    for name in ("summary", "description", "runbook_url"):
        if not str(rule.annotations.get(name) or "").strip():
            yield f"no annotation {name}"
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


def _missing_sections(page: Path) -> list[str]:
    """Return the sections that a runbook page does not have or leaves empty. Raises OSError."""
    text = page.read_text(encoding="utf-8", errors="replace")
    parts = re.split(r"^## +(.+?) *$", text, flags=re.MULTILINE)[1:]
    filled = {title for title, body in zip(parts[::2], parts[1::2], strict=True) if body.strip()}
    return [section for section in SECTIONS if section not in filled]


def _intervals(rules: dict[Path, RulesFile], tests: dict[Path, TestFile]) -> Iterator[Result]:
    """Compare the interval at which promtool evaluates with the groups' own, which it ignores."""
    for path, file in tests.items():
        patterns = [os.path.normpath(path.parent / name) for name in file.rule_files]
        named = [rules[found] for found in rules for name in patterns if fnmatch.fnmatch(str(found), name)]
        groups = [group for found in named for group in found.groups]
        for group in groups:
            if group.interval != file.evaluation_interval:
                detail = (
                    f'group {group.name} every "{group.interval}", tests every "{file.evaluation_interval}"'
                )
                yield Result(Status.LINT, "interval", path.name, detail)


def _dashboards(directory: Path, rules: list[RulesFile], find: Find) -> Iterator[Result]:
    """Lint every dashboard, follow its links and those of the alerts to it, and let promtool read the queries."""
    models: dict[str, dict[str, Any]] = {}
    names: dict[str, str] = {}
    for path in sorted(directory.glob("dashboards/*.json")):
        name = str(path.relative_to(directory))
        try:
            model = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        except msgspec.DecodeError as error:
            yield Result(Status.FAILED, "JSON", name, str(error))
            continue
        uid = str(model.get("uid") or path.stem)
        models[uid], names[uid] = model, name
    pages = frozenset(page.name for page in directory.glob("runbooks/*.md"))
    for uid, model in models.items():
        dead = list(dashboard_lint.dead_ends(model, models, pages))
        yield from _verdict("dashboard", names[uid], dead, dashboard_lint.lint(model))
    for rule in (rule for file in rules for group in file.groups for rule in group.rules):
        address = str(rule.annotations.get("dashboard_url") or "")
        if address and (nowhere := dashboard_lint.lost(address, models)):
            yield Result(Status.FAILED, "alert", rule.alert, f"dashboard_url: {nowhere}")
    if models:
        yield _queries(models, find("promtool"))


def _queries(models: dict[str, dict[str, Any]], promtool: str | None) -> Result:
    what = ("promtool check rules", "dashboards/*.json")
    if promtool is None:
        return Result(Status.ABSENT, *what, "promtool is not installed")
    with tempfile.TemporaryDirectory(prefix="omniwatch-") as directory:
        Path(directory, "queries.yaml").write_text(
            json.dumps(dashboard_lint.as_rules(models)), encoding="utf-8"
        )
        status, words = _run([promtool, "check", "rules", "--lint=none", "queries.yaml"], Path(directory))
    return Result(status, *what, words)
