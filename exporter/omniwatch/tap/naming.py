"""Who the client behind a chat is: the name of its stream. One name, whoever of the middleware tells of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from omniwatch.tap.wire import ELIDED

HEADER = b"x-omni-stream"
CLAIMED = "omniwatch.claimed"
"""In the scope of a chat: a list that the tap adds the stream's name to, for a middleware around it that put it there."""
MAX_NAME = 64
"""The contract's."""
MAX_BODY_BYTES = 8 * 2**20
"""Beyond it a request is not read: its client goes by its address."""


def stated(headers: Iterable[tuple[bytes, bytes]], user: str | None) -> str | None:
    """Return the name that a request gives: its header `X-Omni-Stream`, else its `user`; None where it has neither.

    Long names are cut, and stay different by their digest. A `user` that was shortened in reading is none.
    """
    if user and ELIDED in user:
        user = None
    named = next((value.decode("latin-1") for name, value in headers if name == HEADER and value), user)
    if not named or len(named) <= MAX_NAME:
        return named or None
    return f"{named[:47]}-{hashlib.sha256(named.encode()).hexdigest()[:16]}"
