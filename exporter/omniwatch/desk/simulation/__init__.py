"""Simulate a sliced-model server's events under named conditions. Pure, seeded, in order of event time."""

from __future__ import annotations

from omniwatch.desk.simulation.scenarios import SCENARIOS, Condition, Scenario, SimulatedListener
from omniwatch.desk.simulation.server import events

__all__ = ["SCENARIOS", "Condition", "Scenario", "SimulatedListener", "events"]
