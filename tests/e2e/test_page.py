"""From a fault in the event file to a person's pager, through a real Prometheus and a real Alertmanager."""

from __future__ import annotations

import pytest

from omniwatch.desk.demo import Demo
from omniwatch.desk.demo.local_stack import Stack
from omniwatch.desk.simulation import SCENARIOS


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ["reconnect-jump", "late-answers"])
def test_a_fault_pages_in_time_and_resolves(tmp_path, name):
    with Stack(tmp_path, say=lambda line: None) as stack:
        demo = Demo(stack, SCENARIOS[name])
        steps = [step.what for step in demo.run()]
    assert steps == [
        "speech begins",
        "fault begins",
        "threshold crossed",
        "rule pending",
        "rule firing",
        "page received",
        "fault mended",
        "resolved",
    ]
    assert demo.in_time, f"the page came {demo.page_after_s} s after the fault"
