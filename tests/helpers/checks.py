"""What `omniwatch check` found wrong."""

from __future__ import annotations

from omniwatch.bundle import check
from omniwatch.bundle.check import Status

RULES = "alerts/streaming.rules.yaml"


def no_tool(name: str) -> None:
    return None


def wrong(results: list[check.Result]) -> list[str]:
    return [str(result).splitlines()[0] for result in results if result.status is not Status.OK]


def found_wrong(results: list[check.Result]) -> list[str]:
    return [line for line in wrong(results) if not line.startswith(Status.ABSENT.value)]
