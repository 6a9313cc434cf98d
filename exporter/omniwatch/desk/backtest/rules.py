"""Parse rule files: what each rule queries, and whether a recording holds those series."""

from __future__ import annotations

import enum
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from omniwatch.desk import promql
from omniwatch.desk.backtest.errors import BacktestError
from omniwatch.desk.backtest.states import Hold
from omniwatch.desk.backtest.templates import TEMPLATED, is_template
from omniwatch.desk.durations import seconds
from omniwatch.metrics.stream_metrics import FAMILIES, HISTOGRAMS
from omniwatch.system import user_file, user_yaml

ASSUMED = frozenset(
    {
        "up",
        "omniwatch_source_up",
        "omniwatch_source_blind",
        "omniwatch_source_lag_seconds",
        "omniwatch_config_last_reload_successful",
        "omniwatch_host_reader_up",
        "omniwatch_streams_without_series",
        "omniwatch_config_last_reload_success_timestamp_seconds",
        "omniwatch_checkpoint_errors_total",
        "omniwatch_build_info",
    }
)
"""Series of scraping and of the sidecar's own health. No recording holds them, so a backtest takes them as good."""
HEARTBEAT = "none"
"""The severity of an alert that fires as long as the chain works."""
_QUOTED = r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`'


class Standing(enum.Enum):
    """What a recording can say of a rule."""

    JUDGED = "judged"
    ASSUMED = "assumed"
    """It asks only for series that a backtest takes as good."""
    MISSING = "missing"
    """It asks for a metric that event files do not hold."""


class Rule(msgspec.Struct, frozen=True):
    """An alert (or a recording rule, where `is_alert` is False) with its times in seconds."""

    name: str
    expression: str
    interval_s: float
    file: str = ""
    group: str = ""
    for_s: float = 0.0
    keep_firing_for_s: float = 0.0
    labels: dict[str, str] = {}
    is_alert: bool = True

    @property
    def severity(self) -> str:
        """Its label `severity`, "" without one; "templated" where it may be another for each alert."""
        severity = self.labels.get("severity", "")
        return TEMPLATED if is_template(severity) else severity

    @property
    def hold(self) -> Hold:
        """Its waits, and whether less is worse: it is where the first comparison is `<` or `<=`."""
        bare = re.sub(rf"{_QUOTED}|\{{[^{{}}]*\}}", "", self.expression)
        comparison = re.search(r"[<>]=?|[!=]=", bare)
        lower = comparison is not None and comparison[0].startswith("<")
        return Hold(self.for_s, self.keep_firing_for_s, lower)


class _Raw(msgspec.Struct):
    expr: str | float | int
    alert: str = ""
    record: str = ""
    for_: str | int = msgspec.field(name="for", default="0s")
    keep_firing_for: str | int = "0s"
    labels: dict[str, Any] | None = None


class _Group(msgspec.Struct):
    name: str
    rules: list[_Raw] | None = None
    interval: str | int = ""


class _File(msgspec.Struct):
    groups: list[_Group] | None = None


def read(path: Path, default_interval_s: float) -> list[Rule]:
    """Return the rules of a file, in order. Raises BacktestError."""
    try:
        content = user_file.read(path, user_yaml.MAX_BYTES)
    except OSError as error:
        raise BacktestError(f"{path}: {error.strerror}") from error
    return parse(content, path.name, default_interval_s)


def parse(text: str | bytes, file: str, default_interval_s: float) -> list[Rule]:
    """Read a rules file's text; `default_interval_s` is for groups that name none. Raises BacktestError."""
    try:
        groups = msgspec.convert(user_yaml.parse(text), _File).groups or []
        return [
            Rule(
                raw.alert or raw.record,
                uncommented(str(raw.expr)).strip(),
                seconds(group.interval) or default_interval_s,
                file,
                group.name,
                seconds(raw.for_),
                seconds(raw.keep_firing_for),
                {name: str(value) for name, value in (raw.labels or {}).items()},
                bool(raw.alert),
            )
            for group in groups
            for raw in group.rules or []
        ]
    except ValueError as error:
        raise BacktestError(f"{file}: {' '.join(str(error).split())}") from error


def uncommented(expression: str) -> str:
    """Return PromQL without its comments."""
    return re.sub(rf"({_QUOTED})|#[^\n]*", lambda match: match[1] or "", expression)


def asked(rule: Rule) -> list[promql.Selector]:
    """Return what a rule asks for. Raises BacktestError."""
    try:
        return list(promql.selectors(rule.expression))
    except promql.PromqlError as error:
        raise BacktestError(f"{rule.file}: {rule.name}: {error}") from error


def metric(selector: promql.Selector) -> str:
    """Return the name a selector asks for, "" where it asks for names by a pattern."""
    match = re.fullmatch(r'="(.*)"', selector.matchers.get("__name__", ""))
    return selector.metric or (match[1] if match else "")


def speech_names() -> frozenset[str]:
    """Return every series that events can make, whether or not a recording has it."""
    plain = {family.name + ("_total" if family.kind == "counter" else "") for family in FAMILIES}
    parts = {family.name + part for family in HISTOGRAMS for part in ("_bucket", "_count", "_sum")}
    return frozenset(plain | parts)


class RuleSet:
    """A rule set and what the recording holds: `held` are names of series, `targets` the labels of each scrape."""

    def __init__(
        self,
        rules: Sequence[Rule],
        held: Collection[str],
        targets: Sequence[Mapping[str, str]],
    ) -> None:
        self.alerts = [rule for rule in rules if rule.is_alert]
        self._recorded: dict[str, list[Rule]] = {}
        for rule in rules:
            if not rule.is_alert:
                self._recorded.setdefault(rule.name, []).append(rule)
        self._held = frozenset(held) | {"up"}
        self._targets = targets

    def standing(self, rule: Rule) -> tuple[Standing, list[str]]:
        """Return what the recording can say of a rule, and the names that it lacks or takes for granted.

        Of conditions joined by `or`, one that can be judged is enough.
        """
        found = [self._standing(part) for part in _parts(rule)]
        missing = sorted({name for one, names in found if one is Standing.MISSING for name in names})
        if any(one is Standing.JUDGED for one, _ in found):
            return Standing.JUDGED, missing
        if missing:
            return Standing.MISSING, missing
        return Standing.ASSUMED, sorted({name for _, names in found for name in names})

    def judged_part(self, rule: Rule) -> Rule:
        """Return a rule without those of its conditions, joined by `or`, that ask for what the recording lacks."""
        parts = _parts(rule)
        kept = [part for part in parts if self._standing(part)[0] is not Standing.MISSING]
        if len(kept) == len(parts):
            return rule
        return msgspec.structs.replace(rule, expression=" or ".join(part.expression for part in kept))

    def _standing(self, rule: Rule) -> tuple[Standing, list[str]]:
        leaves = list(self._leaves(rule, ()))
        missing = [name for name, held in leaves if not held]
        if missing:
            return Standing.MISSING, sorted(set(missing))
        names = sorted({name for name, _ in leaves})
        if names and ASSUMED.issuperset(names):
            return Standing.ASSUMED, names
        return Standing.JUDGED, []

    def needed(self, rule: Rule) -> list[Rule]:
        """Return the recording rules that a judged rule rests on, each after those it rests on itself."""
        found: list[Rule] = []
        for name in dict.fromkeys(map(metric, asked(rule))):
            for below in self._recorded.get(name, ()):
                found += [one for one in (*self.needed(below), below) if one not in found]
        return found

    def _leaves(self, rule: Rule, trail: tuple[str, ...]) -> Iterator[tuple[str, bool]]:
        """Yield each metric that a rule queries, also by recording rules, and whether it is held. A rule that queries itself is not."""
        for selector in asked(rule):
            name = metric(selector)
            below = self._recorded.get(name, ())
            if below and name not in trail:
                for recorded in below:
                    yield from self._leaves(recorded, (*trail, name))
            elif not name:
                yield "", True
            else:
                held = name in self._held and (name != "up" or self._is_scraped(selector))
                yield name if held else _shown(name, selector), held

    def _is_scraped(self, selector: promql.Selector) -> bool:
        """Whether the `up` of anything scraped is among what a selector asks for."""
        wanted = [(label, matcher) for label, matcher in selector.matchers.items() if label != "__name__"]
        return any(
            all(matches(matcher, target.get(label, "")) for label, matcher in wanted)
            for target in self._targets
        )


def _parts(rule: Rule) -> list[Rule]:
    try:
        found = promql.alternatives(rule.expression)
    except promql.PromqlError as error:
        raise BacktestError(f"{rule.file}: {rule.name}: {error}") from error
    return [msgspec.structs.replace(rule, expression=part) for part in found]


def _shown(name: str, selector: promql.Selector) -> str:
    matcher = selector.matchers.get("job", "") if name == "up" else ""
    return f"up{{job{matcher}}}" if matcher else name


def matches(matcher: str, text: str) -> bool:
    """Whether a label's value is what a matcher, such as =~"a|b", asks for."""
    sign, _, pattern = matcher.partition('"')
    pattern = pattern.removesuffix('"')
    if sign in ("=", "!="):
        return (text == pattern) == (sign == "=")
    try:
        found = re.fullmatch(pattern, text) is not None
    except re.error:
        return True
    return found == (sign == "=~")
