"""Remove what a process that was killed left beside a file it was replacing."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from omniwatch.system.atomic_write import staged_for


def remove(target: Path) -> None:
    """Remove what was to take the place of `target` and never did. Only where no other process writes it now."""
    with suppress(OSError):
        for path in target.parent.iterdir():
            if staged_for(path.name) == target.name:
                path.unlink(missing_ok=True)
