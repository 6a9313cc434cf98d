"""As much of PromQL as a linter needs: which series a query asks for, with which matchers, inside which function."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)
  | (?P<number>(?:0x[0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[a-z]*)
  | (?P<name>[A-Za-z_:][A-Za-z0-9_:]*)
  | (?P<variable>\$\w+|\$\{\w+\})
  | (?P<sign>=~|!~|!=|==|>=|<=|[-+*/%^<>=(){}\[\],:@])
  | (?P<space>\s+)
  | (?P<other>.)
    """,
    re.VERBOSE,
)
_WORDS = {"and", "or", "unless", "bool", "offset", "start", "end", "inf", "nan", "atan2"}
_LABEL_LISTS = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_PAIRS = {"(": ")", "{": "}", "[": "]"}


class PromqlError(ValueError):
    """Text that cannot be a query; the message is one line."""


class Selector(NamedTuple):
    """One vector selector: `window` is what stands in its brackets, `function` what is called on it directly, ""
    where a list of labels stands between.
    """

    metric: str
    matchers: dict[str, str]
    """Operator and value by label: {"job": '=~"$job"'}."""
    window: str
    function: str


def selectors(query: str) -> list[Selector]:
    """Return every selector of a query, in order. Raises PromqlError."""
    return list(_selectors(_tokens(query)))


def _tokens(query: str) -> list[tuple[str, str]]:
    """Return kind and text of each token; every bracket is closed by its own kind. Raises PromqlError."""
    found: list[tuple[str, str]] = []
    open_: list[str] = []
    for match in _TOKEN.finditer(query):
        kind, text = match.lastgroup or "", match.group()
        if kind == "other":
            raise PromqlError(f"{text!r} at position {match.start()}")
        if text in _PAIRS:
            open_.append(_PAIRS[text])
        elif kind == "sign" and text in _PAIRS.values() and (not open_ or open_.pop() != text):
            raise PromqlError(f"{text!r} at position {match.start()} closes nothing")
        if kind != "space":
            found.append((kind, text))
    if open_:
        raise PromqlError(f"{open_[-1]!r} is missing")
    return found


def _selectors(tokens: list[tuple[str, str]]) -> Iterator[Selector]:
    calls: list[str] = []
    at = 0
    while at < len(tokens):
        kind, text = tokens[at]
        following = tokens[at + 1][1] if at + 1 < len(tokens) else ""
        at += 1
        if kind == "name" and following.lower() in _LABEL_LISTS and text.lower() not in _WORDS:
            continue  # sum by (…) (…)
        if kind == "name" and text.lower() in _LABEL_LISTS:
            if following == "(":
                at = _after(tokens, at, ")")
        elif text == "(":
            before = tokens[at - 2] if at > 1 else ("", "")
            calls.append(before[1] if before[0] == "name" else "")
        elif text == ")":
            calls.pop()
        elif text == "[":
            at = _after(tokens, at - 1, "]")
        elif text == "{" or (kind == "name" and following != "(" and text.lower() not in _WORDS):
            metric = "" if text == "{" else text
            matchers: dict[str, str] = {}
            start = at - 1 if text == "{" else at
            if start < len(tokens) and tokens[start][1] == "{":
                at = _after(tokens, start, "}")
                matchers = _matchers(tokens[start + 1 : at - 1])
            window = ""
            if at < len(tokens) and tokens[at][1] == "[":
                end = _after(tokens, at, "]")
                window = "".join(part for _, part in tokens[at + 1 : end - 1])
                at = end
            yield Selector(metric, matchers, window, calls[-1] if calls else "")


def _after(tokens: list[tuple[str, str]], at: int, closing: str) -> int:
    """Return the place after the bracket that closes the one at or before `at`. What these hold has no brackets."""
    while tokens[at][1] != closing:
        at += 1
    return at + 1


def _matchers(tokens: list[tuple[str, str]]) -> dict[str, str]:
    text = "".join(part for _, part in tokens)
    return {
        match["label"]: match["rest"]
        for match in re.finditer(r'(?P<label>\w+)(?P<rest>(?:=~|!~|!=|=)"(?:[^"\\]|\\.)*")', text)
    }
