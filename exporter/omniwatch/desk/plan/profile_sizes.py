"""Compute what a profile's plan needs: the parts that stand as `computed` in deploy/profiles."""

from __future__ import annotations

from omniwatch.bundle.profiles import Part, Planned
from omniwatch.desk.plan import components
from omniwatch.desk.plan.device import DEVICES
from omniwatch.desk.plan.memory import Result, Wanted, compute
from omniwatch.desk.plan.released import RELEASED, RELEASED_NAME


def result(planned: Planned) -> Result:
    """Compute the plan on an Orin of 64 GB. Raises PlanError."""
    return compute(
        Wanted(
            name=RELEASED_NAME,
            model=RELEASED,
            device=DEVICES["orin-64"],
            types=components.parse_types(planned.quantization),
            talker=planned.talker,
            streams=planned.streams,
            max_model_len=planned.max_model_len,
            kv_type=planned.kv_cache_dtype,
        )
    )


def parts(planned: Planned) -> list[Part]:
    """List what is loaded at the same time, each part in GB with one decimal. Raises PlanError."""
    plan = result(planned)
    found = []
    for stage in plan.stages:
        types = dict.fromkeys(part.type for part in plan.components if part.stage == stage.name)
        small = [kind for kind in types if kind != "bf16"]
        kind = " and ".join(small).upper() if small else "bf16"
        found.append(_part(f"{stage.name} in {kind}", stage.weights_bytes))
    found.append(_part(f"KV cache of {plan.streams} x {plan.max_model_len} tokens", plan.kv_bytes))
    found.append(_part("contexts and activations, assumed", plan.overhead_bytes))
    return found


def _part(what: str, size_bytes: int) -> Part:
    return Part(what, round(size_bytes / 1e9, 1))
