"""Make a whole plan: what is needed, the cheapest change that makes it fit, and how fast it can be at most."""

from __future__ import annotations

from pathlib import Path

import msgspec

from omniwatch.desk.plan import checkpoint, model
from omniwatch.desk.plan.bound import Bound, bound
from omniwatch.desk.plan.change import Change, cheapest
from omniwatch.desk.plan.memory import Result, Wanted, compute
from omniwatch.desk.plan.released import RELEASED, RELEASED_NAME

SCHEMA = 1
"""Version of the JSON that `omniwatch plan --json` prints; fields are added within a version, never changed."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What `omniwatch plan --json` prints. `change` is null where the plan fits, or where no known change helps."""

    schema: int = SCHEMA
    result: Result
    change: Change | None
    bound: Bound | None


def plan(wanted: Wanted) -> Plan:
    """Make a plan. Raises PlanError."""
    result = compute(wanted)
    return Plan(result=result, change=cheapest(wanted), bound=bound(wanted, result))


def read(path: Path | None) -> tuple[str, model.Model, checkpoint.Weights | None]:
    """Read a checkpoint's directory or its config.json alone; None: the released model. Raises PlanError, OSError."""
    if path is None:
        return RELEASED_NAME, RELEASED, None
    found = model.read(path)
    weights = checkpoint.read(path) if path.is_dir() else None
    return path.resolve().name if path.is_dir() else str(path), found, weights
