"""Remember which groups of alerts people were told of; safe for threads."""

from __future__ import annotations

import hashlib
import threading

MAX_OPEN = 10_000
"""Groups remembered. Of one that is forgotten, the next message calls people once more."""


class OpenGroups:
    """The groups whose first message was taken and that are not over, by digests of their keys."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, group_key: str) -> bool:
        return _digest(group_key) in self._open

    def take(self, group_key: str, *, is_firing: bool) -> int:
        """Note a group's latest state. Returns how many were forgotten for it: those heard of longest ago."""
        digest = _digest(group_key)
        with self._lock:
            self._open.pop(digest, None)
            if is_firing:
                self._open[digest] = None
            too_many = len(self._open) - MAX_OPEN
            for oldest in list(self._open)[: max(0, too_many)]:
                del self._open[oldest]
        return max(0, too_many)


def _digest(group_key: str) -> bytes:
    return hashlib.sha256(group_key.encode()).digest()
