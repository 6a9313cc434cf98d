"""Write a backtest's findings as JSON, for programs."""

from __future__ import annotations

from typing import Any

from omniwatch.desk.backtest.compare import Comparison, Difference
from omniwatch.desk.backtest.notifications import Notification, counts
from omniwatch.desk.backtest.run import Findings, Verdict
from omniwatch.desk.backtest.states import Episode


def facts(findings: Findings) -> dict[str, Any]:
    """Return a whole backtest. Times are seconds since the epoch, a value that is no number is text ("NaN", "+Inf")."""
    return {
        "rule_set": findings.side.name,
        "recording": {
            "first_t": findings.first_t,
            "last_t": findings.last_t,
            "events": findings.events,
            "refused": findings.refused,
            "lost": findings.lost,
        },
        "scrapes": findings.scrapes,
        "target": findings.side.targets[0],
        "rules": [_rule(verdict) for verdict in findings.verdicts],
        "notifications": {
            "receivers": {name: sent._asdict() for name, sent in counts(findings.sent).items()},
            "messages": [_message(one) for one in findings.sent],
        },
    }


def differences(found: Comparison) -> dict[str, Any]:
    """Return what two rule sets have in common and what not."""
    return {
        "firings": [_firing(one) for one in found.firings],
        "only_first_has": found.only_first,
        "only_second_has": found.only_second,
    }


def outcome(verdict: Verdict) -> str:
    """Return a rule's outcome in a word: fired, pending, silent, missing, assumed or refused."""
    if verdict.error:
        return "refused"
    if verdict.standing.value != "judged":
        return verdict.standing.value
    return "fired" if verdict.fired else "pending" if verdict.alerts else "silent"


def _rule(verdict: Verdict) -> dict[str, Any]:
    rule = verdict.rule
    return {
        "alert": rule.name,
        "severity": rule.severity,
        "group": rule.group,
        "file": rule.file,
        "expr": rule.expression,
        "interval_s": rule.interval_s,
        "for_s": rule.for_s,
        "outcome": outcome(verdict),
        **({"metrics": verdict.names} if verdict.names else {}),
        **({"error": verdict.error} if verdict.error else {}),
        "alerts": [
            {"labels": dict(alert.labels), "episodes": [_episode(one) for one in alert.episodes]}
            for alert in verdict.alerts
        ],
    }


def _episode(episode: Episode) -> dict[str, Any]:
    return {
        "pending_t": episode.pending_t,
        "firing_t": episode.firing_t,
        "resolved_t": episode.over_t,
        "worst": _number(episode.worst),
        "worst_t": episode.worst_t,
    }


def _message(one: Notification) -> dict[str, Any]:
    return {
        "t": one.t,
        "receiver": one.receiver,
        "status": one.status,
        "group": dict(one.group),
        "firing": [dict(labels) for labels in one.firing],
        "resolved": [dict(labels) for labels in one.resolved],
        "begins_incident": one.begins,
        "repeats": one.repeats,
    }


def _firing(one: Difference) -> dict[str, Any]:
    return {
        "alert": one.rule,
        "labels": dict(one.labels),
        "first": None if one.first is None else _episode(one.first),
        "second": None if one.second is None else _episode(one.second),
        "later_s": one.later_s,
    }


def _number(value: float) -> float | str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return value
