"""Read how many experts each part keeps: `96`, or `thinker=64,talker=96`. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from omniwatch.desk.plan.model import PlanError


def parse(text: str, parts: Sequence[str]) -> dict[str, int]:
    """Return the experts a layer by part; a number alone is that of all `parts`. Raises PlanError."""
    if _is_number(text):
        return dict.fromkeys(parts, int(text))
    found: dict[str, int] = {}
    for word in text.split(","):
        part, equals, number = word.strip().partition("=")
        if not equals or not _is_number(number):
            raise PlanError(
                f'--experts: expected a number such as 96, or thinker=64,talker=96, got "{text[:60]}"'
            )
        if part not in parts:
            raise PlanError(f'--experts: "{part[:20]}": the parts with experts are {" and ".join(parts)}')
        if part in found:
            raise PlanError(f"--experts: {part} twice")
        found[part] = int(number)
    return found


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 9
