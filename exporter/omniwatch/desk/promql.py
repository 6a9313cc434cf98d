"""Read from a query which series it asks for, with which matchers, inside which function."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from omniwatch.system import needed

needed.of_extra("reading a query", "promql_parser", "desk")

import promql_parser  # noqa: E402 - the check comes first

_VARIABLE = re.compile(
    r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`|\#[^\n]*)   # in texts and comments it may stand as it is
      | (\$\w+|\$\{\w+\})""",
    re.VERBOSE,
)
_STAND_IN_MS = 1_000_000_000
"""The parser does not know Grafana's variables: for the n-th one stands a duration of n ms more than this, 11.6 days."""
_SIGNS = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}


class PromqlError(ValueError):
    """Text that cannot be a query."""


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
    """Return every selector of a query, in order. Grafana's variables may stand for durations. Raises PromqlError."""
    variables: list[str] = []

    def stand_in(found: re.Match[str]) -> str:
        if found[1] is not None:
            return found[1]
        variables.append(found[2])
        return f"{_STAND_IN_MS + len(variables)}ms"

    try:
        expression = promql_parser.parse(_VARIABLE.sub(stand_in, query))
    except ValueError as error:
        raise PromqlError(" ".join(str(error).split())) from error
    windows = {timedelta(milliseconds=_STAND_IN_MS + n): name for n, name in enumerate(variables, 1)}
    return list(_selectors(expression, "", windows))


def alternatives(query: str) -> list[str]:
    """Return the parts of a query that `or` joins at its top, each a query. Raises PromqlError.

    One with a subquery that leaves its step out stays whole: the parser writes that as a range, which is another query.
    """
    try:
        parts = [str(part) for part in _alternatives(promql_parser.parse(query))]
    except ValueError as error:
        raise PromqlError(" ".join(str(error).split())) from error
    return [query] if len(parts) == 1 or re.search(r":\s*\]", query) else parts


def _alternatives(expression: Any) -> Iterator[Any]:
    if isinstance(expression, promql_parser.ParenExpr):
        yield from _alternatives(expression.expr)
    elif isinstance(expression, promql_parser.BinaryExpr) and str(expression.op) == "or":
        yield from _alternatives(expression.lhs)
        yield from _alternatives(expression.rhs)
    else:
        yield expression


def _selectors(expression: Any, function: str, windows: dict[timedelta, str]) -> Iterator[Selector]:
    if isinstance(expression, promql_parser.VectorSelector):
        yield _selector(expression, "", function)
    elif isinstance(expression, promql_parser.MatrixSelector):
        length = expression.range
        window = windows.get(length) or promql_parser.display_duration(length)
        yield _selector(expression.vector_selector, window, function)
    elif isinstance(expression, promql_parser.Call):
        for argument in expression.args:
            yield from _selectors(argument, expression.func.name, windows)
    elif isinstance(expression, promql_parser.AggregateExpr):
        name = "" if expression.modifier else str(expression.op)
        for part in (expression.param, expression.expr):
            yield from _selectors(part, name, windows)
    elif isinstance(expression, promql_parser.BinaryExpr):
        yield from _selectors(expression.lhs, function, windows)
        yield from _selectors(expression.rhs, function, windows)
    elif isinstance(expression, promql_parser.ParenExpr):
        yield from _selectors(expression.expr, "", windows)
    elif isinstance(expression, (promql_parser.UnaryExpr, promql_parser.SubqueryExpr)):
        yield from _selectors(expression.expr, function, windows)


def _selector(found: promql_parser.VectorSelector, window: str, function: str) -> Selector:
    matchers = [*found.matchers.matchers, *(one for group in found.matchers.or_matchers for one in group)]
    return Selector(
        found.name or "",
        {one.name: f'{_SIGNS[str(one.op).rpartition(".")[2]]}"{one.value}"' for one in matchers},
        window,
        function,
    )
