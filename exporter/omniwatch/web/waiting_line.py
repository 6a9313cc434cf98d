"""Bound what is done at once, in all and for one address, with a share kept for this machine."""

from __future__ import annotations

import threading
from collections import Counter

from omniwatch.system.hostport import network_of


class Places:
    """Places for `most` at once, `per_address` of them for one address; `kept` are for loopback alone.

    The addresses of one network count as one.
    """

    def __init__(self, most: int, per_address: int, kept: int) -> None:
        self._most, self._per_address, self._kept = most, per_address, kept
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    def take(self, address: str) -> bool:
        """Take a place, if there is one for the address."""
        network = network_of(address)
        with self._lock:
            most = self._most - (0 if network == "::1" or network.startswith("127.") else self._kept)
            if self._taken.total() >= most or self._taken[network] >= self._per_address:
                return False
            self._taken[network] += 1
            return True

    def give_back(self, address: str) -> None:
        """Give a place back."""
        network = network_of(address)
        with self._lock:
            self._taken[network] -= 1
            if not self._taken[network]:
                del self._taken[network]
