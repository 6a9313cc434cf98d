"""The failure table of the manual, from the catalogue of alerts, failures.yaml, the rules and the routing that a site is given."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec
import yaml

from omniwatch.bundle import catalogue, render
from omniwatch.settings import Settings

FILE = Path(__file__).with_name("failures.yaml")
DELIVERY_S = {"page": 7, "ticket": 37, "none": 60}
"""Seconds from a rule that fires until somebody has the message: a page waits for no other, tickets for 30 s. A dead man's switch
misses the heartbeat after a minute."""
_MATCHER = re.compile(r'(\w+)=~?"(.*)"')


class Untold(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of failures.yaml: a failure that no alert tells of."""

    failure: str
    nobody: str
    tests: list[str]


class Area(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of failures.yaml."""

    area: str
    rows: list[Untold] = []


class Row(NamedTuple):
    """One row of the table: of an alert, or of none and why."""

    failure: str
    tests: Sequence[str]
    alert: str = ""
    cause: str = ""
    seen_s: int = 0
    nobody: str = ""


def areas() -> dict[str, list[Row]]:
    """Return the rows of each part: those of alerts as the catalogue has them, then the others. Raises ValueError."""
    found: dict[str, list[Row]] = {}
    told = [(name, row) for name, entry in catalogue.load().items() for row in entry.failures]
    for area in msgspec.convert(yaml.safe_load(FILE.read_text(encoding="utf-8")), list[Area]):
        found[area.area] = [
            *(
                Row(row.failure, row.tests, name, row.cause, row.seen_s)
                for name, row in told
                if row.area == area.area
            ),
            *(Row(row.failure, row.tests, nobody=row.nobody) for row in area.rows),
        ]
    for name, row in told:
        if row.area not in found:
            raise ValueError(f"{catalogue.FILE}: {name}: {FILE.name} has no area {row.area!r}")
    return found


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


def within_s(row: Row, rule: dict[str, Any]) -> int:
    """Return the seconds from a failure until somebody is told."""
    return row.seen_s + seconds(rule.get("for", "0s")) + DELIVERY_S[rule["labels"]["severity"]]


def _time(s: int) -> str:
    return f"{s} s" if s < 120 else f"{round(s / 60)} min" if s < 7200 else f"{round(s / 3600)} h"


def _cells(row: Row, bundle: render.Files, known: dict[str, dict[str, Any]]) -> tuple[str, ...]:
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
    for area, rows in areas().items():
        yield area, (_cells(row, bundle, known) for row in rows)


HEAD = ("failure", "who is told", "by which rule, or why nobody", "within", "silences", "test")
