"""Read durations that a user or a file gives."""

from __future__ import annotations

from omniwatch.bundle import durations


def seconds(text: str | int, *, fractions: bool = False) -> float:
    """Read a duration such as 1m30s or 0; "" is 0. Raises ValueError.

    With `fractions`, 1.5h is one as well. Prometheus itself refuses it.
    """
    if str(text) in ("", "0"):
        return 0.0
    found = durations.seconds(str(text), fractions=fractions)
    if found is None:
        raise ValueError(f"expected a duration such as 15s or 1m30s, got {str(text)!r}")
    return found
