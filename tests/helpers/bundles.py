"""Rendered bundles and copies of the data folders for tests, and the settings they are rendered with."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

from helpers import needs
from omniwatch.bundle import data, render
from omniwatch.bundle.yaml_text import load_yaml
from omniwatch.desk.durations import seconds
from omniwatch.settings import Alerts, Grafana, Settings, Site

HOSTILE = """ssh -J 'a b' ops@{ .Device }} `x` {% x %} [[ y ]] "z" \\ # & <b> : $(id) 设备"""
FINE = Settings(
    alerts=Alerts(
        drift_page_ms=62.5,
        drift_for_s=7,
        rtt_page_ms=1234.5,
        rtt_for_s=61,
        turns_share=0.07,
        turns_min=40,
        turns_window_s=121,
        evaluation_interval_s=3,
    ),
    site=Site(access=HOSTILE, runbook_base_url="https://wiki.example/run/"),
    grafana=Grafana(url="https://grafana.example/sub/"),
)
"""Fractions, times that the evaluation interval does not divide, and a text that nothing may read as more than text."""
LINKED = Settings(site=Site(runbook_base_url=FINE.site.runbook_base_url), grafana=FINE.grafana)
"""The defaults, with the addresses that messages link to."""
COARSE = Settings(
    alerts=Alerts(
        drift_page_ms=1000,
        drift_for_s=0,
        rtt_page_ms=750,
        rtt_for_s=5,
        turns_share=0.5,
        turns_min=1,
        turns_window_s=3600,
        scrape_interval_s=30,
        evaluation_interval_s=60,
    ),
    site=LINKED.site,
    grafana=LINKED.grafana,
)
"""At once, one turn is enough, and the edge in seconds is a whole number."""
TIGHT = Settings(
    alerts=Alerts(
        drift_page_ms=45,
        drift_for_s=600,
        rtt_page_ms=3,
        rtt_for_s=0,
        turns_share=0.29,
        turns_min=2,
        turns_window_s=60,
        scrape_interval_s=15,
        evaluation_interval_s=15,
    )
)
"""The shortest window there can be, and a long wait."""
SUBJECTS = ("early", "network", "objectives", "server", "sidecar", "monitoring", "resumption")
"""Of the rules for whoever is on call, beyond the contract's."""
QUICK = 200
"""Evaluations: few unit tests need more, and those take most of the time."""
PARTS = 3


def rendered(directory: Path, settings: Settings | None = None, root: Path | None = None) -> Path:
    """Write a bundle below `directory` and return where it is: by default with the addresses that messages link to."""
    render.write(render.render(settings or LINKED, root), directory)
    return directory


def data_folders(directory: Path) -> Path:
    """Copy the project's data folders, to be changed, and return their root."""
    for folder in data.FOLDERS:
        shutil.copytree(data.root() / folder, directory / folder)
    return directory


def replaced(path: Path, old: str, new: str) -> None:
    """Replace every `old` in a file; it must be there."""
    text = path.read_text()
    assert old in text, f"{path.name} has no {old!r}"
    path.write_text(text.replace(old, new))


def promtool(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the real promtool, without the options of lint where it knows none."""
    if not needs.TOOLS.knows(needs.LINT):
        arguments = tuple(word for word in arguments if not str(word).startswith("--lint"))
    return subprocess.run(
        ["promtool", *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )


def unit_tests(
    directory: Path, subject: str, only: Collection[str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the unit tests of a subject's rules, or only those of some alerts."""
    tests = _tests(directory, subject, only)
    assert tests, f"{subject}: no unit test of {only}"
    return _run(directory, subject, tests)


def failing(
    directory: Path, subject: str, only: Collection[str] | None = None, *, annotations: bool = True
) -> Iterator[subprocess.CompletedProcess[str]]:
    """Yield what unit tests that are expected to fail say, a few tests at a time, those that look far ahead last.

    Whoever has seen enough asks for no more. One thing written wrong mostly fails several tests, which stand together.
    Without annotations promtool takes a quarter less time: it parses each of their templates at each evaluation.
    """
    tests = _tests(directory, subject, only)
    quick = [test for test in tests if _is_quick(test)]
    for some in (*(quick[n::PARTS] for n in range(PARTS)), [test for test in tests if not _is_quick(test)]):
        if some:
            yield _run(directory, subject, some, annotations=annotations)


def _tests(directory: Path, subject: str, only: Collection[str] | None) -> list[dict[str, Any]]:
    whole = load_yaml((directory / f"alerts/{subject}.test.yaml").read_text())
    return [test for test in whole["tests"] if only is None or _named(test) & set(only)]


def _named(test: dict[str, Any]) -> set[str]:
    return {case["alertname"] for case in test.get("alert_rule_test") or ()}


def _is_quick(test: dict[str, Any]) -> bool:
    cases = [*test.get("alert_rule_test", ()), *test.get("promql_expr_test", ())]
    return max(seconds(case["eval_time"]) for case in cases) <= QUICK * seconds(test["interval"])


def _run(
    directory: Path, subject: str, tests: list[dict[str, Any]], *, annotations: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run tests beside no rules but those that they need: whole, each evaluates every rule of its file, in twice the time."""
    folder = directory / "alerts"
    whole = load_yaml((folder / f"{subject}.test.yaml").read_text())
    parts: dict[frozenset[str], list[dict[str, Any]]] = {}
    for test in tests:
        named = frozenset() if "promql_expr_test" in test else frozenset(_named(test))
        parts.setdefault(named, []).append(test)
    files = []
    for number, (named, tests) in enumerate(parts.items()):
        rules = load_yaml((folder / f"{subject}.rules.yaml").read_text())
        if named:
            needed = _needed([rule for group in rules["groups"] for rule in group["rules"]], named)
            for group in rules["groups"]:
                group["rules"] = [rule for rule in group["rules"] if _name(rule) in needed]
        if not annotations:
            for rule in (rule for group in rules["groups"] for rule in group["rules"]):
                rule.pop("annotations", None)
            tests = [_without_annotations(test) for test in tests]
        part = f"{subject}-{number}"
        # JSON is YAML, and written many times as fast.
        (folder / f"{part}.rules.yaml").write_text(json.dumps(rules))
        read = [
            f"{part}.rules.yaml" if name == f"{subject}.rules.yaml" else name for name in whole["rule_files"]
        ]
        (folder / f"{part}.test.yaml").write_text(json.dumps(whole | {"tests": tests, "rule_files": read}))
        files.append(f"alerts/{part}.test.yaml")
    return promtool("test", "rules", *files, cwd=directory)


def _without_annotations(test: dict[str, Any]) -> dict[str, Any]:
    cases = [
        case | {"exp_alerts": [{"exp_labels": alert["exp_labels"]} for alert in case["exp_alerts"]]}
        for case in test.get("alert_rule_test", ())
    ]
    return test | {"alert_rule_test": cases}


def _name(rule: dict[str, Any]) -> str:
    name: str = rule.get("alert") or rule["record"]
    return name


def _needed(rules: list[dict[str, Any]], named: Collection[str]) -> set[str]:
    """The names of some alerts, and of the rules that their expressions name."""
    needed = set(named)
    while (
        more := {
            _name(rule)
            for rule in rules
            if any(_name(rule) in one["expr"] for one in rules if _name(one) in needed)
        }
        - needed
    ):
        needed |= more
    return needed


def changed_settings(group: str, **values: Any) -> Settings:
    """Return the defaults with some fields of one group changed."""
    defaults = Settings()
    return msgspec.structs.replace(
        defaults, **{group: msgspec.structs.replace(getattr(defaults, group), **values)}
    )


def hold(
    directory: Path,
    rules: list[str],
    every_s: int,
    series: dict[str, str],
    evaluation_s: int | None = None,
    **asked: Any,
) -> None:
    """Hold what is `asked` of these rules of a bundle against them: one of promtool's unit tests."""
    test = {
        "interval": f"{every_s}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        **asked,
    }
    content = {
        "rule_files": rules,
        "evaluation_interval": f"{evaluation_s or every_s}s",
        "group_eval_order": ["omni_fleet_memory", "omni_fleet", "omni_fleet_held"],
        "tests": [test],
    }
    (directory / "here.test.yaml").write_text(json.dumps(content))
    done = promtool("test", "rules", "here.test.yaml", cwd=directory)
    assert done.returncode == 0, done.stdout + done.stderr


def sample(expression: str, at: str, *found: tuple[str, float]) -> dict[str, Any]:
    """Return the case that an expression has these samples, by labels, at that time; none is no sample."""
    samples = [{"labels": labels, "value": value} for labels, value in found]
    return {"expr": expression, "eval_time": at, "exp_samples": samples}
