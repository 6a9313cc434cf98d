"""Compare what a server runs with against what is written: a configuration, and the rules of Prometheus. Pure."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import msgspec

from omniwatch.bundle.durations import seconds

SECRET = "<secret>"
"""What a server shows in a secret's place, which may be the whole of an address."""
OPTIONAL = frozenset(
    (
        *("external_labels", "path_prefix", "basic_auth", "authorization", "metric_relabel_configs"),
        *("webhook_configs", "pagerduty_configs", "slack_configs", "email_configs", "channel"),
        *("smtp_auth_username", "smtp_auth_password", "smtp_auth_password_file", "inhibit_rules"),
    )
)
"""Keys that a server does not fill in by itself: one that runs and is not written is a difference."""
_TOKEN = re.compile(
    r"""
    \#[^\n]* | \s+ | [(),]
    | (?P<text>"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | `[^`]*`)
    | (?P<duration>(?:\d+(?:ms|[smhdwy]))+(?![\w.]))
    | (?P<number>0x[0-9a-fA-F]+ | (?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<word>[A-Za-z_:][\w:]*)
    | (?P<sign>[=!<>]=|=~|!~|.)
    """,
    re.VERBOSE,
)


class Rule(msgspec.Struct, frozen=True, rename="camel"):
    """A rule as Prometheus tells of it; `duration` is its `for` in seconds."""

    name: str
    query: str
    health: str = "ok"
    last_error: str = ""
    duration: float = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Group(msgspec.Struct, frozen=True, rename="camel"):
    """A group of rules as Prometheus tells of it; `interval` is in seconds."""

    name: str
    file: str
    rules: list[Rule]
    interval: float
    last_evaluation: datetime = datetime(1, 1, 1, tzinfo=timezone.utc)


def difference(written: Any, runs: Any, folder: str = "", where: str = "") -> str:
    """Return where a running configuration is not as it is written; "" where it is. `folder` is what relative paths are from.

    What a server fills in by itself is no difference, nor how it writes times and paths; of a secret nothing is known.
    """
    if isinstance(written, Mapping):
        if not isinstance(runs, Mapping):
            return where if written else ""
        for key, value in written.items():
            here = f"{where}.{key}".lstrip(".")
            if key not in runs:
                if not _is_nothing(value):
                    return here
            elif found := difference(_ordered(key, value), _ordered(key, runs[key]), folder, here):
                return found
        more = [key for key in runs if key in OPTIONAL and key not in written and runs[key]]
        return f"{where}.{more[0]}".lstrip(".") if more else ""
    if isinstance(written, list):
        if not isinstance(runs, list) or len(runs) != len(written):
            return where if written or runs else ""
        pairs = enumerate(zip(written, runs, strict=True))
        places = (difference(one, other, folder, f"{where}[{n}]") for n, (one, other) in pairs)
        return next(filter(None, places), "")
    return "" if _is_same(written, runs, folder) else where


def _ordered(key: str, value: Any) -> Any:
    """Sort what a server sorts: matchers by their names, and lists of words whose order says nothing."""
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        return value
    if key.endswith("matchers"):
        return sorted(re.sub(r"\s*(=~|!~|!=|=)\s*", r"\1", one).replace('"', "") for one in value)
    return value if key == "source_labels" else sorted(value)


def _is_nothing(value: Any) -> bool:
    return not value or (isinstance(value, str) and seconds(value) == 0)


def _is_same(written: Any, runs: Any, folder: str) -> bool:
    one, other = str(written), str(runs)
    if one == other or SECRET in other or other.lower() == one.lower() in ("true", "false"):
        return True
    if (length_s := seconds(one)) is not None and length_s == seconds(other):
        return True
    if other.startswith("/") and folder:
        return posixpath.normpath(posixpath.join(folder, one)) == posixpath.normpath(other)
    # An address without a path is written with one.
    return one.rstrip("/") == other.rstrip("/") and "://" in one


def rule_differences(written: Mapping[str, Any], groups: Sequence[Group]) -> Iterator[str]:
    """Yield which of the written rules do not run so, a few words each. `written` has the content of each file by its path; `groups`
    is what runs, of other files too.
    """
    for path, content in written.items():
        there = {group.name: group for group in groups if group.file == path}
        wanted = {one["name"]: one["rules"] for one in content.get("groups") or []}
        for name in wanted.keys() ^ there.keys():
            yield f"group {name} {'runs no more' if name in wanted else 'is no longer written'}"
        for name in wanted.keys() & there.keys():
            runs = there[name].rules
            if len(runs) != len(wanted[name]):
                yield f"group {name} has other rules"
                continue
            for rule, its in zip(wanted[name], runs, strict=True):
                if what := _of_rule(rule, its):
                    yield f"{rule.get('alert') or rule.get('record')} has another {what}"


def _of_rule(written: Mapping[str, Any], runs: Rule) -> str:
    if (written.get("alert") or written.get("record")) != runs.name:
        return "name"
    if meaning(str(written["expr"])) != meaning(runs.query):
        return "expression"
    if (seconds(str(written.get("for", "0s"))) or 0) != runs.duration:
        return "time for which it must hold"
    for key, its in (("labels", runs.labels), ("annotations", runs.annotations)):
        if {name: str(value) for name, value in (written.get(key) or {}).items()} != its:
            return key[:-1]
    return ""


def meaning(expression: str) -> Counter[str]:
    """Return what an expression is made of, however it is printed: Prometheus moves `by (...)`, spaces and parentheses, and writes
    numbers, times and texts in its own way.
    """
    found: Counter[str] = Counter()
    for token in _TOKEN.finditer(expression):
        kind = token.lastgroup
        text = token.group()
        if kind == "text":
            found[repr(_unquoted(text))] += 1
        elif kind == "duration":
            length_s = seconds(text)
            found[text if length_s is None else f"{length_s:g} s"] += 1
        elif kind == "number":
            found[f"{float(int(text, 16) if text.startswith('0x') else text):g}"] += 1
        elif kind == "word":
            found[
                text.lower()
                if text.lower() in ("and", "or", "unless", "by", "without", "inf", "nan")
                else text
            ] += 1
        elif kind == "sign" and text != "+":
            found[text] += 1
    return found


def _unquoted(text: str) -> str:
    return text[1:-1] if text[0] == "`" else re.sub(r"\\(.)", r"\1", text[1:-1])
