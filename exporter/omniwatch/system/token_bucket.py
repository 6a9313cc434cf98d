"""Token buckets: limit an average rate, and allow bounded bursts."""

from __future__ import annotations

from collections import OrderedDict


class TokenBucket:
    """A rate: `rate` a second on average, `burst` at once."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._left = burst
        self._t = now

    def take(self, now: float) -> bool:
        """Whether one more is allowed now."""
        self._left = min(self._burst, self._left + (now - self._t) * self._rate)
        self._t = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class TokenBuckets:
    """`burst` at once, then `per_s` a second, for each key.

    When there are more keys than `max_keys`, the one unused longest is forgotten.
    """

    def __init__(self, per_s: float, burst: float, max_keys: int = 4096) -> None:
        self._per_s = per_s
        self._burst = burst
        self._max_keys = max_keys
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, key: str, now: float) -> bool:
        """Take one of the key's, if there is one to take now (seconds, of any one clock)."""
        bucket = self._buckets.pop(key, None) or TokenBucket(self._per_s, self._burst, now)
        self._buckets[key] = bucket
        if len(self._buckets) > self._max_keys:
            self._buckets.popitem(last=False)
        return bucket.take(now)
