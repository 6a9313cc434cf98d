"""An hour of two listeners at 120 km/h, simulated and put into a real Prometheus: whoever is on call sleeps through it.

Every rule of the rendered bundle is asked at each of its evaluations. What was a ticket is printed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from helpers.backtest_command import T0, backtested, outcomes, record
from omniwatch.desk.simulation import SCENARIOS, Scenario, events
from omniwatch.desk.simulation.scenarios import Condition, SimulatedListener

HOUR_S = 3600.0
LISTENERS = (SimulatedListener(), SimulatedListener(joins_s=300.0, leaves_s=3300.0, reports_rtt=True))
FAULT_AT_S, FAULT_S = 1800.0, 20.0


def hour(name: str, **changes: Any) -> Scenario:
    """A scenario's good conditions for an hour."""
    return msgspec.structs.replace(
        SCENARIOS[name], **{"duration_s": HOUR_S, "listeners": LISTENERS, **changes}
    )


def backtest(scenario: Scenario, path: Path) -> dict[str, Any]:
    found = backtested(record(path, events(scenario, 1, T0, HOUR_S)))
    told = outcomes(found)
    assert found["recording"]["last_t"] - found["recording"]["first_t"] > HOUR_S - 1
    assert found["scrapes"] >= HOUR_S
    assert told["Watchdog"] == "fired"
    assert not [name for name, outcome in told.items() if outcome == "refused"]
    return found


def episodes(found: dict[str, Any], severity: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each time that an alert of a severity was active, with its rule."""
    return [
        (rule, episode)
        for rule in found["rules"]
        if rule["severity"] == severity
        for alert in rule["alerts"]
        for episode in alert["episodes"]
    ]


def pages(found: dict[str, Any]) -> list[str]:
    return [rule["alert"] for rule, episode in episodes(found, "page") if episode["firing_t"] is not None]


def tell(name: str, found: dict[str, Any]) -> str:
    """Return the hour's tickets in words, and for how long the pages that were pending were so at most."""
    lines = ["", f"{name}, {found['recording']['events']} events:"]
    for rule, episode in episodes(found, "ticket"):
        if episode["firing_t"] is not None:
            until = "the end" if episode["resolved_t"] is None else f"{episode['resolved_t'] - T0:.0f} s"
            lines.append(f"  ticket {rule['alert']}: from {episode['firing_t'] - T0:.0f} s to {until}")
    waits: dict[str, list[float]] = {}
    for rule, episode in episodes(found, "page"):
        if episode["firing_t"] is None and episode["resolved_t"] is not None:
            waits.setdefault(rule["alert"], []).append(episode["resolved_t"] - episode["pending_t"])
    for alert, lengths in waits.items():
        lines.append(f"  {alert} was pending {len(lengths)} times, for {max(lengths):.0f} s at most")
    return "\n".join([*lines, ""])


@pytest.mark.parametrize("name", ["steady", "handover-120"])
def test_a_quiet_hour_pages_nobody(tmp_path, capsys, name):
    found = backtest(hour(name), tmp_path / "events.jsonl")
    with capsys.disabled():
        sys.stdout.write(tell(name, found))
    assert pages(found) == []
    long = [
        (rule["alert"], episode)
        for rule, episode in episodes(found, "page")
        if (episode["resolved_t"] or HOUR_S + T0) - episode["pending_t"] >= rule["for_s"]
    ]
    assert long == [], "one evaluation more and somebody would have been paged"


def test_the_same_hour_with_one_fault_in_it_pages_once(tmp_path, capsys):
    scenario = hour(
        "handover-120",
        fault_at_s=FAULT_AT_S,
        mended_at_s=FAULT_AT_S + FAULT_S,
        fault=Condition(mute=True),
        listeners=(SimulatedListener(),),
    )
    found = backtest(scenario, tmp_path / "events.jsonl")
    with capsys.disabled():
        sys.stdout.write(tell("with a fault", found))
    assert pages(found) == ["StreamSilent"]
    ((_, episode),) = [one for one in episodes(found, "page") if one[1]["firing_t"] is not None]
    assert FAULT_AT_S < episode["firing_t"] - T0 < FAULT_AT_S + FAULT_S
    assert FAULT_AT_S + FAULT_S < episode["resolved_t"] - T0 < FAULT_AT_S + FAULT_S + 30
