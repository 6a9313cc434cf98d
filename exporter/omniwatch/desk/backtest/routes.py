"""A rendered Alertmanager configuration as a backtest needs it: who is sent which alerts, in which groups, what silences what."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import yaml

from omniwatch.desk.backtest.errors import BacktestError
from omniwatch.desk.backtest.states import Labels
from omniwatch.desk.durations import seconds

_MATCHER = re.compile(r'\s*([A-Za-z_]\w*)\s*(=~|!~|!=|=)\s*("?)(.*?)\3\s*', re.ASCII | re.DOTALL)
GROUP_WAIT, GROUP_INTERVAL, REPEAT_INTERVAL = "30s", "5m", "4h"
"""Alertmanager's own, where the root route says nothing."""
EVERY_LABEL = ("...",)
"""What `group_by` says where each alert is a group of its own."""


class Matcher(NamedTuple):
    """One condition on a label; a label that is absent is empty."""

    label: str
    pattern: re.Pattern[str]
    wanted: bool

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet the condition."""
        return (self.pattern.fullmatch(labels.get(self.label, "")) is not None) == self.wanted


class Route(NamedTuple):
    """A node of the route tree, what it inherits filled in. `path` are the places of its ancestors and its own."""

    path: tuple[int, ...]
    receiver: str
    group_by: tuple[str, ...]
    wait_s: float
    interval_s: float
    repeat_s: float
    matchers: tuple[Matcher, ...]
    goes_on: bool
    children: tuple[Route, ...]

    def group_of(self, labels: Mapping[str, str]) -> Labels:
        """Return the labels that an alert shares with its group."""
        return tuple(
            (name, text)
            for name, text in sorted(labels.items())
            if self.group_by == EVERY_LABEL or name in self.group_by
        )

    def taken_by(self, labels: Mapping[str, str]) -> list[Route]:
        """Return the routes that an alert ends at."""
        if not all(matcher.matches(labels) for matcher in self.matchers):
            return []
        found: list[Route] = []
        for child in self.children:
            taken = child.taken_by(labels)
            found += taken
            if taken and not child.goes_on:
                break
        return found or [self]


class Inhibition(NamedTuple):
    """Alerts that `sources` match silence those that `targets` match, where the labels `equal` are the same."""

    sources: tuple[Matcher, ...]
    targets: tuple[Matcher, ...]
    equal: tuple[str, ...]

    def silences(self, source: Mapping[str, str], target: Mapping[str, str]) -> bool:
        """Whether a firing source silences a target. What matches both sides is silenced by none that does so, too."""
        if not (_all(self.sources, source) and _all(self.targets, target)):
            return False
        if _all(self.sources, target) and _all(self.targets, source):
            return False
        return all(source.get(label, "") == target.get(label, "") for label in self.equal)


class Relabelling(NamedTuple):
    """One of Prometheus' alert_relabel_configs with action `replace`."""

    labels: tuple[str, ...]
    separator: str
    pattern: re.Pattern[str]
    target: str
    replacement: str

    def apply(self, labels: dict[str, str]) -> None:
        """Set the target label where the pattern matches; an empty one goes."""
        found = self.pattern.fullmatch(self.separator.join(labels.get(name, "") for name in self.labels))
        if found is None:
            return
        text = found.expand(re.sub(r"\$\{?(\w+)\}?", r"\\g<\1>", self.replacement))
        labels.pop(self.target, None)
        if text:
            labels[self.target] = text


class Routing(NamedTuple):
    """How alerts reach receivers. `sends_resolved` has a receiver for each that has a channel at all."""

    external: dict[str, str]
    relabellings: tuple[Relabelling, ...]
    root: Route
    inhibitions: tuple[Inhibition, ...]
    sends_resolved: dict[str, bool]

    def labelled(self, name: str, labels: Labels) -> Labels:
        """Return an alert's labels as Alertmanager gets them."""
        sent = {**self.external, **dict(labels), "alertname": name}
        for relabelling in self.relabellings:
            relabelling.apply(sent)
        return tuple(sorted(sent.items()))


class _Route(msgspec.Struct, forbid_unknown_fields=True):
    receiver: str = ""
    group_by: list[str] | None = None
    group_wait: str | int = ""
    group_interval: str | int = ""
    repeat_interval: str | int = ""
    matchers: list[str] = []
    continue_: bool = msgspec.field(name="continue", default=False)
    routes: list[_Route] = []


class _Inhibition(msgspec.Struct, forbid_unknown_fields=True):
    source_matchers: list[str]
    target_matchers: list[str]
    equal: list[str] = []


class _Alertmanager(msgspec.Struct):
    route: _Route
    receivers: list[dict[str, Any]]
    inhibit_rules: list[_Inhibition] = []


class _Relabelling(msgspec.Struct, forbid_unknown_fields=True):
    target_label: str
    source_labels: list[str] = []
    separator: str = ";"
    regex: str = "(.*)"
    replacement: str = "$1"
    action: str = "replace"


def read(alertmanager: str, prometheus: str) -> Routing:
    """Read the texts of both configurations. Raises BacktestError where one says what is not understood here."""
    try:
        config = msgspec.convert(yaml.safe_load(alertmanager), _Alertmanager)
        sender = yaml.safe_load(prometheus)
        raw = (sender.get("alerting") or {}).get("alert_relabel_configs") or []
        root = _Route(
            group_by=[],
            group_wait=GROUP_WAIT,
            group_interval=GROUP_INTERVAL,
            repeat_interval=REPEAT_INTERVAL,
        )
        return Routing(
            dict((sender.get("global") or {}).get("external_labels") or {}),
            tuple(_relabelling(msgspec.convert(one, _Relabelling)) for one in raw),
            _route(config.route, root, ()),
            tuple(
                Inhibition(
                    _matchers(one.source_matchers),
                    _matchers(one.target_matchers),
                    tuple(one.equal),
                )
                for one in config.inhibit_rules
            ),
            dict(_receivers(config.receivers)),
        )
    except (yaml.YAMLError, ValueError, re.error) as error:
        raise BacktestError(f"alertmanager.yml, prometheus.yml: {' '.join(str(error).split())}") from error


def _route(raw: _Route, above: _Route, path: tuple[int, ...]) -> Route:
    names = ("receiver", "group_by", "group_wait", "group_interval", "repeat_interval")
    own = {
        name: value if (value := getattr(raw, name)) not in ("", None) else getattr(above, name)
        for name in names
    }
    whole = msgspec.structs.replace(raw, **own)
    return Route(
        path,
        whole.receiver,
        tuple(whole.group_by or ()),
        seconds(whole.group_wait),
        seconds(whole.group_interval),
        seconds(whole.repeat_interval),
        _matchers(raw.matchers),
        raw.continue_,
        tuple(_route(child, whole, (*path, place)) for place, child in enumerate(raw.routes)),
    )


def _matchers(texts: Sequence[str]) -> tuple[Matcher, ...]:
    return tuple(_matcher(text) for text in texts)


def _matcher(text: str) -> Matcher:
    found = _MATCHER.fullmatch(text)
    if found is None:
        raise ValueError(f'expected a matcher such as severity="page", got {text!r}')
    label, sign, _, value = found.groups()
    return Matcher(label, re.compile(value if "~" in sign else re.escape(value)), not sign.startswith("!"))


def _relabelling(raw: _Relabelling) -> Relabelling:
    if raw.action != "replace":
        raise ValueError(f"alert_relabel_configs: the action {raw.action} is not understood")
    return Relabelling(
        tuple(raw.source_labels), raw.separator, re.compile(raw.regex), raw.target_label, raw.replacement
    )


def _receivers(raw: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, bool]]:
    for one in raw:
        channels = [
            channel for kind, some in one.items() if kind.endswith("_configs") for channel in some or ()
        ]
        if channels:
            yield one["name"], any(channel.get("send_resolved", True) for channel in channels)


def _all(matchers: Sequence[Matcher], labels: Mapping[str, str]) -> bool:
    return all(matcher.matches(labels) for matcher in matchers)
