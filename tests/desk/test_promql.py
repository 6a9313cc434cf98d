"""Which series a query asks for; and text that is no query."""

from __future__ import annotations

import pytest

from omniwatch.desk.promql import PromqlError, selectors


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("up", [("up", {}, "", "")]),
        ('rate(a_total{b="c{d}",e!~"f"}[5m])', [("a_total", {"b": '="c{d}"', "e": '!~"f"'}, "5m", "rate")]),
        ("sum by (a, b) (x) / on (a) group_left (c) y", [("x", {}, "", ""), ("y", {}, "", "")]),
        ("sum(x) without (a) > bool 1e3", [("x", {}, "", "")]),
        ('{__name__="x"}', [("", {"__name__": '="x"'}, "", "")]),
        ("max_over_time(rate(x[1m])[5m:10s])", [("x", {}, "1m", "rate")]),
        (
            "a:b{} offset 5m and c unless ignoring(d) e",
            [("a:b", {}, "", ""), ("c", {}, "", ""), ("e", {}, "", "")],
        ),
        ("x[$__rate_interval]", [("x", {}, "$__rate_interval", "")]),
        (
            'rate(a{b="$b"}[${__range}]) / rate(c[90s]) # of $d',
            [("a", {"b": '="$b"'}, "${__range}", "rate"), ("c", {}, "1m30s", "rate")],
        ),
        ("a or (b and c)", [("a", {}, "", ""), ("b", {}, "", ""), ("c", {}, "", "")]),
        (r'x{a=~"b\\.c"}', [("x", {"a": r'=~"b\.c"'}, "", "")]),
        ("histogram_quantile(0.5, x) < Inf", [("x", {}, "", "histogram_quantile")]),
    ],
)
def test_selectors(query, expected):
    assert [tuple(selector) for selector in selectors(query)] == expected


@pytest.mark.parametrize(
    "query", ["rate(x", "x)", "x{a}]", "(x]", "x ! y", "sum(x}", "rate(x)", "1 $x 2", "x[$__range", "f(x)"]
)
def test_text_that_is_no_query(query):
    with pytest.raises(PromqlError):
        selectors(query)
