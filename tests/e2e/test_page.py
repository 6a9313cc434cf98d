"""From a fault in the event file to a person's pager, through a real Prometheus and a real Alertmanager, and why it was bad."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from helpers.fake_robots import StandIn
from omniwatch.desk.child_process import free_port
from omniwatch.desk.demo import Demo
from omniwatch.desk.demo.local_stack import Notice, Stack
from omniwatch.desk.simulation import SCENARIOS
from omniwatch.settings import Settings
from omniwatch.settings.receivers import Notify, Robot

STEPS = [
    "speech begins",
    "fault begins",
    "threshold crossed",
    "rule pending",
    "rule firing",
    "page received",
    "fault mended",
    "resolved",
]


class Group(list[dict[str, Any]]):
    """What a chat group has been told, also as notices of the pager."""

    def __init__(self, stack: Stack, alert: str) -> None:
        super().__init__()
        self._stack, self._alert = stack, alert

    def append(self, body: dict[str, Any]) -> None:
        """Take a message of the robot's."""
        super().append(body)
        text = body["markdown"]["content"]
        status = "resolved" if f"RESOLVED: {self._alert}" in text else "firing"
        self._stack.pager.notices.put(Notice(time.time(), status, self._alert, {}, {"description": text}))


@pytest.mark.timeout(240)
def test_a_fault_pages_in_time_with_its_cause_and_resolves(tmp_path: Path) -> None:
    """The bad turn is the first of the day, and is not over when the page comes."""
    with Stack(tmp_path, say=lambda line: None) as stack:
        demo = Demo(stack, SCENARIOS["reconnect-jump"])
        steps = {step.what: step.detail for step in demo.run()}
    assert list(steps) == STEPS
    assert demo.in_time, f"the page came {demo.page_after_s} s after the fault"
    assert "This turn so far: out of sync by a cut connection." in steps["page received"]


@pytest.mark.timeout(240)
def test_a_robot_says_the_cause_as_soon(tmp_path: Path) -> None:
    """The late answers are the first of the day. The page goes to a chat group, by the bridge."""
    robot = StandIn("wecom")
    (tmp_path / "robot").write_text(robot.url)
    address = f"127.0.0.1:{free_port()}"
    one = Robot("wecom", str(tmp_path / "robot"), language="en")
    stack = Stack(
        tmp_path / "stack",
        Settings(notify=Notify(listen_address=address, robots=[one])),
        say=lambda line: None,
    )
    by_bridge = msgspec.structs.replace(stack.settings.receivers, page_webhook_url=None)
    stack.settings = msgspec.structs.replace(stack.settings, receivers=by_bridge)
    robot.taken = Group(stack, "TokenRTT")
    try:
        with stack:
            config, state = stack.directory / "omniwatch.yaml", tmp_path / "notify"
            bridge = [sys.executable, "-m", "omniwatch", "notify", f"--config.file={config}"]
            stack.run("bridge", [*bridge, f"--state-dir={state}"], address).await_ready("/-/healthy")
            demo = Demo(stack, SCENARIOS["late-answers"])
            steps = {step.what: step.detail for step in demo.run()}
    finally:
        robot.close()
    assert list(steps) == STEPS
    assert demo.in_time, f"the page came {demo.page_after_s} s after the fault"
    first = steps["page received"].splitlines()
    assert any("Mostly slow thinking: " in line for line in first[:4]), first
