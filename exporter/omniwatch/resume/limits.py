"""Rate bounds for each of a bounded number of keys."""

from __future__ import annotations

from collections import OrderedDict

from omniwatch.tap.report import Bucket


class Buckets:
    """`burst` at once, then `per_s` a second, for each key; when there are more keys than `max_keys`, the one unused longest is forgotten."""

    def __init__(self, per_s: float, burst: float, max_keys: int = 4096) -> None:
        self._per_s = per_s
        self._burst = burst
        self._max_keys = max_keys
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, key: str, now: float) -> bool:
        """Take one of the key's, if there is one to take now (seconds, of any one clock)."""
        bucket = self._buckets.pop(key, None) or Bucket(self._per_s, self._burst, now)
        self._buckets[key] = bucket
        if len(self._buckets) > self._max_keys:
            self._buckets.popitem(last=False)
        return bucket.take(now)
