"""Gather what is known of each candidate: memory from the plan, the rest from results of `bench chain`. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from omniwatch.desk.advise import CANDIDATES, AdviceError, Constraints, Facts, Figure, chain_of
from omniwatch.desk.chain import Result
from omniwatch.desk.chain.figures import QUANTITIES, Cell, cells
from omniwatch.desk.plan import components, planning
from omniwatch.desk.plan.device import of_size
from omniwatch.desk.plan.memory import Wanted

PLANS = {"cloud-native": ("bf16", True), "edge-int4": ("int4", True), "thinker-only": ("int4", False)}
"""What each candidate runs: type of its weights, and whether with the talker."""


def gather(
    constraints: Constraints, results: Mapping[str, Result], prices: Mapping[str, float]
) -> dict[str, Facts]:
    """Return each candidate's facts. Raises AdviceError where a result does not hold the candidate's chain."""
    found = {}
    for name in CANDIDATES:
        known = measured(name, results[name], constraints) if name in results else Facts()
        found[name] = Facts(
            memory_gb=known.memory_gb or planned(name, constraints),
            first_audio_s=known.first_audio_s,
            first_token_s=known.first_token_s,
            audio_rate=known.audio_rate,
            watts=known.watts,
            cost=Figure(value=prices[name], source="--price") if name in prices else None,
        )
    return found


def planned(name: str, constraints: Constraints) -> Figure | None:
    """Return the memory that the plan computes, in GB, with the system's share; None for the cascade."""
    if name not in PLANS:
        return None
    kind, talker = PLANS[name]
    size = constraints.cloud_memory_gb if name == "cloud-native" else constraints.memory_gb
    title, model, weights = planning.read(None)
    wanted = Wanted(
        name=title,
        model=model,
        weights=weights,
        device=of_size(size or 64.0),
        types=components.parse_types([kind]),
        talker=talker,
        streams=constraints.streams,
        max_model_len=constraints.max_model_len,
    )
    result = planning.plan(wanted).result
    return Figure(
        value=(result.needed_bytes + result.system_bytes) / 1e9,
        source=f"computed: {command(name, constraints)}",
    )


def command(name: str, constraints: Constraints) -> str:
    """Return the `omniwatch plan` that computes a candidate's memory."""
    kind, talker = PLANS[name]
    words = f"omniwatch plan --quantization {kind}" if kind != "bf16" else "omniwatch plan"
    silent = "" if talker else " --no-talker"
    return f"{words}{silent} --streams {constraints.streams} --max-model-len {constraints.max_model_len}"


def measured(name: str, result: Result, constraints: Constraints) -> Facts:
    """Return what a result says of a candidate at the constraints' number of streams; other numbers say nothing of it."""
    chain = chain_of(name)
    own = [cell for cell in cells(result) if cell.chain == chain]
    if not own:
        raise AdviceError(f"--measured {name}: the result holds no turns of the {chain} chain")
    cell = next((one for one in own if one.concurrency == constraints.streams), None)
    held = [one.needed_bytes or one.held_bytes for one in result.memory if one.chain == chain]
    memory = None
    if held and all(size is not None for size in held):
        memory = Figure(value=sum(size or 0 for size in held) / 1e9, source="measured, what was watched")
    device = next((one for one in result.devices if one.chain == chain), None)
    asked_s = sum(b.end_s - b.start_s for b in result.levels if b.chain == chain)
    watts = None
    if device is not None and device.rails_joules and asked_s:
        watts = Figure(
            value=sum(device.rails_joules.values()) / asked_s, source="measured, all rails added up"
        )
    if cell is None:
        return Facts(memory_gb=memory, watts=watts)
    return Facts(
        memory_gb=memory,
        watts=watts,
        first_audio_s=_figure(cell, "first_audio_s", constraints.percentile),
        first_token_s=_figure(cell, "first_token_s", constraints.percentile),
        audio_rate=_figure(cell, "audio_rate", 50),
    )


def _figure(cell: Cell, name: str, percent: int) -> Figure | None:
    quantity = next(quantity for quantity in QUANTITIES if quantity.name == name)
    found = cell.estimate(quantity, percent)
    if found.value is None:
        return None
    return Figure(
        value=found.value,
        # An open end bounds nothing: the limit may lie beyond it.
        low=0.0 if found.low is None else found.low,
        high=math.inf if found.high is None else found.high,
        source=f"measured, {found.n} turns at {cell.concurrency} at once",
    )
