"""Who the client behind a chat is: the name of its stream."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

HEADER = b"x-omni-stream"
MAX_NAME = 64
"""The contract's."""


def stated(headers: Iterable[tuple[bytes, bytes]], user: str | None) -> str | None:
    """Return the name that a request gives: its header `X-Omni-Stream`, else its `user`; None where it has neither.

    Long names are cut, and stay different by their digest.
    """
    named = next((value.decode("latin-1") for name, value in headers if name == HEADER and value), user)
    if not named or len(named) <= MAX_NAME:
        return named or None
    return f"{named[:47]}-{hashlib.sha256(named.encode()).hexdigest()[:16]}"
