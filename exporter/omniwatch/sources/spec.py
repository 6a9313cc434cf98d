"""Open the source that a spec names."""

from __future__ import annotations

import re
from pathlib import Path

from omniwatch.settings.kinds import SOURCE, SOURCE_WORDS
from omniwatch.sources import Source, SourceError, is_pattern


def path_of(spec: str) -> str | None:
    """Return the path or the pattern that a spec follows; None for the journal and for standard input."""
    kind, colon, rest = spec.partition(":")
    if spec == "-" or (kind == "journal" and colon):
        return None
    return rest if kind == "tail" and colon else spec


def open_source(spec: str) -> Source:
    """Return the source that `tail:PATH`, `tail:GLOB`, `journal:UNIT`, `-` or a plain path names.

    Nothing is read yet, and what is not there yet is waited for. Raises SourceError.
    """
    if not re.match(SOURCE, spec):
        raise SourceError(f"source {spec}: expected {SOURCE_WORDS}")
    if spec == "-":
        from omniwatch.sources.stdin import Stdin

        return Stdin()
    path = path_of(spec)
    if path is None:
        from omniwatch.sources.journal import Journal

        unit = spec.partition(":")[2]
        if not unit:
            raise SourceError("journal: expected journal:UNIT, as in journal:qwen3-omni.service")
        return Journal(unit)
    if not path:
        raise SourceError("tail: expected tail:PATH, as in tail:/run/omniwatch/events.jsonl")
    from omniwatch.sources.tail import Tail
    from omniwatch.sources.tails import Tails

    return Tails(path) if is_pattern(path) else Tail(Path(path))
