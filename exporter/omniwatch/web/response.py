"""A response before it is written."""

from __future__ import annotations

from dataclasses import dataclass, field

PLAIN = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class Response:
    """An answer before it is written."""

    status: str
    body: bytes
    kind: str = PLAIN
    headers: list[tuple[str, str]] = field(default_factory=list)
