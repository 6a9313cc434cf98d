"""The oracle that says which queries must have data: what it takes a query to need."""

from __future__ import annotations

import math

import pytest

from helpers.exposed import Exposed, has_data

ON = '{job=~".+",device=~"a",stream=~"(0|1)"}'


@pytest.fixture
def exposed() -> Exposed:
    found = Exposed()
    for n in range(6):
        found.add(
            f"""# TYPE drift gauge
drift{{stream="0"}} {n}
drift{{stream="7"}} {n}
# TYPE eta gauge
eta{{stream="0"}} +Inf
# TYPE turns_total counter
turns_total{{result="hit"}} 0
frames_total {n}
rtt_bucket{{le="0.5"}} 0
rtt_bucket{{le="+Inf"}} {n // 3}
quiet_bucket{{le="+Inf"}} 0
"""
            + ("late 1\n" if n == 5 else "early 1\n")
        )
    return found


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (f"drift{ON}", True),
        ('drift{stream="3"}', False),
        ('drift{stream!="0"}', True),
        ("drfit", False),
        ("drfit or 0 * max by (device) (up)", False),
        (f"drfit or 0 * max by (device) (drift{ON})", True),
        ("eta < Inf", False),
        ("drift < Inf", True),
        ("drift == 1", True),
        ("quiet_bucket == 1", False),
        ("rate(turns_total[20s])", True),
        ('rate(turns_total{result!~"hit"}[20s])', False),
        ("sum by (device) (rate(turns_total[20s])) > 0", False),
        ("sum by (device) (rate(frames_total[20s])) > 0", True),
        ("sum(rate(turns_total[20s])) / (sum(rate(frames_total[20s])) > 0)", True),
        ("1 - sum by (a) (rate(frames_total[20s])) / (sum by (a) (rate(turns_total[20s])) > 0)", False),
        ("histogram_quantile(0.95, sum by (le) (increase(rtt_bucket[20s])))", True),
        ("histogram_quantile(0.95, sum by (le) (increase(quiet_bucket[20s])))", False),
        ("rate(late[20s])", False),
        ("drift - ignoring(x) group_left() drfit", False),
    ],
)
def test_what_a_query_needs(exposed, query, expected):
    assert has_data(query, exposed, instant=False) is expected


def test_an_instant_query_sees_only_what_is_still_there(exposed):
    assert has_data("late", exposed, instant=True)
    assert not has_data("early", exposed, instant=True)
    assert has_data("early", exposed, instant=False)


def test_what_held_for_one_look_must_not_be_seen(exposed):
    assert has_data("drift == 1", exposed, instant=False)
    assert not has_data("drift == 1", exposed, instant=False, looks=2)
    assert has_data("drift < Inf", exposed, instant=False, looks=6)
    exposed.replace("eta", {"stream": "0"}, [math.inf, 3, math.inf, 4, 5])
    assert has_data("eta < Inf", exposed, instant=False, looks=2)
    assert not has_data("eta < Inf", exposed, instant=False, looks=3)
