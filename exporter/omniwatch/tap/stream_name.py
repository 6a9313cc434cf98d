"""Derive the name of a chat client's stream, identically in the tap and in the resume middleware.

    name=glasses-7                header `X-Omni-Stream: glasses-7`
    user=ada                      the request's `user`
    192.0.2.7                     neither: the client's address

What a client states never equals an address, nor what a client with another `Authorization` states: where one is sent,
its digest is part of the name (`name@1f3b…=glasses-7`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from omniwatch.tap.partial_json import ELIDED

HEADER = b"x-omni-stream"
AUTHORIZATION = b"authorization"
MAX_NAME = 64
"""Characters, by the event contract."""
MAX_BODY_BYTES = 8 * 2**20
"""A larger request is not read: its stream is named by the client's address."""


def stated_name(headers: Iterable[tuple[bytes, bytes]], user: str | None) -> str | None:
    """Return the stream of a request that has the header `X-Omni-Stream`, else a `user`; None where it has neither.

    Long names are cut, and stay different by their digest. A `user` that was shortened in reading is none.
    """
    if user and ELIDED in user:
        user = None
    kind, stated = "user", user
    headers = [*headers]
    for name, value in headers:
        if name == HEADER and value:
            kind, stated = "name", value.decode("latin-1")
    if not stated:
        return None
    owner = owner_of(headers)
    key = f"@{owner[:12]}" if owner else ""
    named = f"{kind}{key}={stated}"
    if len(named) <= MAX_NAME:
        return named
    return f"{named[:47]}-{hashlib.sha256(named.encode()).hexdigest()[:16]}"


def owner_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the digest of the `Authorization` that a client sends, the last one; "" where it sends none."""
    sent = [value for name, value in headers if name == AUTHORIZATION and value]
    return hashlib.sha256(sent[-1]).hexdigest() if sent else ""
