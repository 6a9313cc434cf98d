"""The demonstration's timeline: its steps come in the order of their times, whatever is looked at late."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.old_tools import old_tools
from omniwatch import events as ev
from omniwatch.cli import main
from omniwatch.desk.demo import Demo
from omniwatch.desk.demo.local_stack import Notice, Pager
from omniwatch.desk.simulation import SCENARIOS
from omniwatch.settings import Settings


class EarlyPager:
    """A stack whose server spoke two minutes ago, and whose page was there before anybody looked at the rule."""

    settings = Settings()

    def __init__(self, folder: Path, page_after_s: float) -> None:
        self.began_t = time.time() - 120
        self.fault_t = self.began_t + 10
        self.events = folder / "events.jsonl"
        self.events.write_bytes(ev.encode(ev.StreamStart(t=self.began_t, stream="0")))
        self.pager = Pager()
        for status, after_s in (("firing", page_after_s), ("resolved", page_after_s + 60)):
            self.pager.notices.put(
                Notice(self.fault_t + after_s, status, "CodecDrift", {}, {"description": "late"})
            )

    def simulate(self, *_: str) -> None:
        """Its events are there already."""

    def alerts(self) -> list[dict[str, object]]:
        return [{"state": "firing", "labels": {"alertname": "CodecDrift"}}]

    def query(self, expression: str) -> list[dict[str, list[float]]]:
        if "ALERTS" in expression:
            return [{"value": [time.time(), self.fault_t + (3 if "pending" in expression else 18)]}]
        return [{"value": [time.time(), self.fault_t + 1 if "timestamp" in expression else 180]}]


@pytest.mark.parametrize("page_after_s", [18.2, 40])
def test_the_steps_come_in_the_order_of_their_times(tmp_path: Path, page_after_s: float) -> None:
    stack = EarlyPager(tmp_path, page_after_s)
    demo = Demo(stack, SCENARIOS["reconnect-jump"])  # type: ignore[arg-type]
    steps = list(demo.run())
    assert [step.t for step in steps] == sorted(step.t for step in steps)
    assert len(steps) == len({step.what for step in steps}) == 8
    assert demo.page_after_s == pytest.approx(page_after_s, abs=0.01)
    stack.pager.close()


def test_a_fleet_on_a_prometheus_that_is_too_old_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_tools(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    done = CliRunner().invoke(main, ["demo", "--fleet", "--once"])
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: --fleet: a centre's Prometheus is at least 2.39"), line
