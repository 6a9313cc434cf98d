"""Sample a machine as its sensors would be read: once a second while it is busy, counters in whole periods, some missing."""

from __future__ import annotations

import json
import random

from helpers.incidents.engine import PERIOD_S, Machine

SENSORS = ("quota", "heat", "memory")
GAP_S = 0.3
"""Pauses of work that are shorter end no answer."""


def _spent(spells: list[tuple[float, float]], t: float) -> float:
    return sum(min(b, t) - a for a, b in spells if a < t)


def sampled(machine: Machine, sensors: tuple[str, ...], seed: int, t0: float) -> list[bytes]:
    """Return the lines of device.jsonl. A tenth of the samples comes late, by up to 0.4 s."""
    luck, lines = random.Random(f"{seed} sensors"), []
    for begin, end in _answering(machine):
        t = begin + luck.uniform(0.0, 0.15)
        while t < end:
            lines.append(_sample(machine, sensors, t, t0))
            t += 1.0 + (luck.uniform(0, 0.4) if luck.random() < 0.1 else luck.uniform(0, 0.02))
        lines.append(_sample(machine, sensors, t, t0))
    return lines


def _answering(machine: Machine) -> list[tuple[float, float]]:
    spells: list[tuple[float, float]] = []
    for a, b in machine.busy:
        if spells and a - spells[-1][1] < GAP_S:
            spells[-1] = spells[-1][0], b
        else:
            spells.append((a, b))
    return spells


def _sample(machine: Machine, sensors: tuple[str, ...], t: float, t0: float) -> bytes:
    sample: dict[str, float] = {"t": t0 + t}
    if "quota" in sensors:
        whole_t = int(t / PERIOD_S + 1e-9) * PERIOD_S
        sample["throttled_s"] = 7.0 + _spent(machine.throttled, whole_t)
    if "heat" in sensors:
        sample["clock"] = machine.heat[2] if machine.heat and machine.heat[0] <= t < machine.heat[1] else 1.0
    if "memory" in sensors:
        sample["stalled_s"] = 3.0 + 0.0002 * t + _spent(machine.waits, t)
    return json.dumps(sample).encode()
