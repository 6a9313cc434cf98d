"""Parse the arguments of `dashboards draw`; an invalid one raises DrawError, one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from omniwatch.desk.draw.queries import DrawError
from omniwatch.desk.draw.window import Window, seconds
from omniwatch.desk.plotting import SUFFIXES
from omniwatch.system import needed


def window(start: str | None, end: str | None, last: str, now: float) -> Window:
    """Return the time from `start`, or `last` before the end, to `end`, or now. Raises DrawError."""
    try:
        until = now if end is None else _time("--end", end)
        found = Window(until - seconds(last) if start is None else _time("--start", start), until)
    except ValueError as error:
        raise DrawError(f"--last: {error}") from error
    if found.length_s <= 0:
        raise DrawError(f"--start {start} is not before the end")
    return found


def choices(chosen: Sequence[str]) -> dict[str, list[str]]:
    """Return values by variable, of "name=value" each. Raises DrawError."""
    found: dict[str, list[str]] = {}
    for pair in chosen:
        name, sign, value = pair.partition("=")
        if not name or not sign or not value:
            raise DrawError(f"--var: expected NAME=VALUE, got {pair!r}")
        found.setdefault(name.removeprefix("var-"), []).append(value)
    return found


def targets(models: Mapping[str, dict[str, Any]], out: Path, suffix: str) -> dict[Path, dict[str, Any]]:
    """Return the file of each dashboard; a directory that is not there is made. Raises DrawError, OSError."""
    if not needed.is_there("matplotlib"):
        raise DrawError("dashboards draw needs matplotlib: pip install 'omniwatch[plot]'")
    if out.suffix.lower() not in SUFFIXES:
        out.mkdir(parents=True, exist_ok=True)
        return {out / f"{name}.{suffix}": model for name, model in models.items()}
    if len(models) != 1:
        raise DrawError(f"--out {out}: {len(models)} dashboards do not go into one file")
    if not out.parent.is_dir():
        raise DrawError(f"--out {out}: no such directory: {out.parent}")
    return dict.fromkeys([out], *models.values())


def _time(option: str, text: str) -> float:
    """Read a time, UTC unless it says otherwise. Raises DrawError."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        read = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as error:
        raise DrawError(
            f"{option}: expected seconds since the epoch or 2026-01-31T12:00:00Z, got {text!r}"
        ) from error
    return (read if read.tzinfo else read.replace(tzinfo=timezone.utc)).timestamp()
