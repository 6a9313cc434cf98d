"""The scheme of silences as the catalogue has it: which alert explains which others on its own device."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from omniwatch.bundle import catalogue
from omniwatch.bundle.yaml_text import load_yaml

CATALOGUE = catalogue.load()
EXPLAINING = {
    name
    for name, entry in CATALOGUE.items()
    if any(explained.within == "device" for explained in entry.explains)
}
"""The alerts that silence others of their device."""


def rules(bundle: Path) -> list[dict[str, Any]]:
    """Return every alert of a rendered bundle."""
    files = [load_yaml(path.read_text()) for path in sorted(bundle.glob("alerts/*.rules.yaml"))]
    return [rule for file in files for group in file["groups"] for rule in group["rules"] if "alert" in rule]


def causes(bundle: Path) -> dict[str, list[str]]:
    """Return the values that each alert gives its label `cause`, as its expression has them; [""] where it has no such label."""
    found = {rule["alert"]: re.findall(r'"cause", "([a-z-]+)"', rule["expr"]) for rule in rules(bundle)}
    return {name: sorted(set(values)) or [""] for name, values in found.items()}


def silenced(source: str, cause: str, target: str, *, sources: int = 1) -> bool:
    """Return whether an alert silences another one of its device, which has so many sources of events."""
    return any(
        (not one.causes or cause in one.causes or (one.any_cause_of_one_source and sources == 1))
        and any(_fits(target, of) for of in one.targets)
        for one in CATALOGUE[source].explains
        if one.within == "device"
    )


def _fits(name: str, target: catalogue.Target) -> bool:
    entry = CATALOGUE[name]
    return (
        target.fault in ("", entry.fault)
        and target.severity in ("", entry.severity)
        and (not target.alerts or name in target.alerts)
    )
