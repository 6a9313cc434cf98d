"""The failure table of the manual, from failures.yaml, the rules and the routing that a site is given."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import yaml

from omniwatch.bundle import render
from omniwatch.settings import Settings

FILE = Path(__file__).with_name("failures.yaml")
DELIVERY_S = {"page": 7, "ticket": 37, "none": 60}
"""Seconds from a rule that fires until somebody has the message: a page waits for no other, tickets for 30 s. A dead man's switch
misses the heartbeat after a minute."""
_MATCHER = re.compile(r'(\w+)=~?"(.*)"')


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One row of the table; failures.yaml says what the fields are."""

    failure: str
    tests: list[str]
    alert: str = ""
    cause: str = ""
    seen_s: int = 0
    nobody: str = ""

    def __post_init__(self) -> None:
        """Refuse a row that names an alert and says that nobody is told, or neither."""
        if bool(self.alert) == bool(self.nobody):
            raise ValueError(f'"{self.failure}": expected either `alert` or `nobody`')


class Area(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The failures of one part of the picture."""

    area: str
    rows: list[Failure]


def areas() -> list[Area]:
    """Return the table. Raises msgspec.ValidationError."""
    return msgspec.convert(yaml.safe_load(FILE.read_text(encoding="utf-8")), list[Area])


def rules(bundle: render.Files) -> dict[str, dict[str, Any]]:
    """Return every alert of a rendered bundle by name."""
    return {
        rule["alert"]: rule
        for path, text in bundle.items()
        if path.name.endswith(".rules.yaml")
        for group in yaml.safe_load(text)["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }


def inhibited(bundle: render.Files, alert: str, cause: str = "") -> list[str]:
    """Return what an alert, with this cause, silences on its own device, as Alertmanager's matchers say it."""
    config = yaml.safe_load(bundle[PurePosixPath("deploy/alertmanager/alertmanager.yml")])
    labels = {"alertname": alert, "cause": cause}

    def fits(matcher: str) -> bool:
        ((label, pattern),) = _MATCHER.findall(matcher)
        return label not in labels or bool(re.fullmatch(pattern, labels[label]))

    return [
        ", ".join(rule["target_matchers"])
        for rule in config["inhibit_rules"]
        if all(map(fits, rule["source_matchers"]))
    ]


def seconds(duration: str) -> int:
    """Read a rule's `for`."""
    return sum(
        int(number) * {"s": 1, "m": 60, "h": 3600, "d": 86_400}[unit]
        for number, unit in re.findall(r"(\d+)([smhd])", duration)
    )


def told(rule: dict[str, Any]) -> str:
    """Return who is told: page, ticket or heartbeat."""
    severity = rule["labels"]["severity"]
    return "heartbeat" if severity == "none" else severity


def within_s(row: Failure, rule: dict[str, Any]) -> int:
    """Return the seconds from a failure until somebody is told."""
    return row.seen_s + seconds(rule.get("for", "0s")) + DELIVERY_S[rule["labels"]["severity"]]


def _time(s: int) -> str:
    return f"{s} s" if s < 120 else f"{round(s / 60)} min" if s < 7200 else f"{round(s / 3600)} h"


def _cells(row: Failure, bundle: render.Files, known: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    tests = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in row.tests)
    if row.nobody:
        return row.failure, "nobody", row.nobody, "", "", tests
    rule = known[row.alert]
    name = f"[{row.alert}](../runbooks/{row.alert}.md)" + (f" ({row.cause})" if row.cause else "")
    silences = "<br>".join(f"`{one}`" for one in inhibited(bundle, row.alert, row.cause))
    return row.failure, told(rule), name, _time(within_s(row, rule)), silences, tests


def reference() -> Iterator[tuple[str, Iterator[tuple[str, ...]]]]:
    """Yield each area's name and its rows."""
    bundle = render.render(Settings())
    known = rules(bundle)
    for area in areas():
        yield area.area, (_cells(row, bundle, known) for row in area.rows)


HEAD = ("failure", "who is told", "by which rule, or why nobody", "within", "silences", "test")
