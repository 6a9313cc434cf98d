"""Open the source that a spec names."""

from __future__ import annotations

import re
from pathlib import Path

from omniwatch.settings.kinds import SOURCE, SOURCE_WORDS
from omniwatch.sources import Source, SourceError, is_pattern


def open_source(spec: str) -> Source:
    """Return the source that `tail:PATH`, `tail:GLOB`, `journal:UNIT`, `-` or a plain path names.

    Nothing is read yet, and what is not there yet is waited for. Raises SourceError.
    """
    if not re.match(SOURCE, spec):
        raise SourceError(f"source {spec}: expected {SOURCE_WORDS}")
    kind, colon, rest = spec.partition(":")
    if spec == "-":
        from omniwatch.sources.stdin import Stdin

        return Stdin()
    if kind == "journal" and colon:
        from omniwatch.sources.journal import Journal

        if not rest:
            raise SourceError("journal: expected journal:UNIT, as in journal:qwen3-omni.service")
        return Journal(rest)
    path = rest if kind == "tail" and colon else spec
    if not path:
        raise SourceError("tail: expected tail:PATH, as in tail:/run/omniwatch/events.jsonl")
    from omniwatch.sources.tail import Tail
    from omniwatch.sources.tails import Tails

    return Tails(path) if is_pattern(path) else Tail(Path(path))
