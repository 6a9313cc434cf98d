"""Token buckets: a burst, then a rate, for each key apart."""

from __future__ import annotations

from omniwatch.system.token_bucket import TokenBucket, TokenBuckets


def test_the_bucket_refills() -> None:
    limit = TokenBucket(0.5, 3, 0.0)
    assert [limit.take(0.0) for _ in range(4)] == [True, True, True, False]
    assert not limit.take(1.9)
    assert [limit.take(2.1), limit.take(2.1)] == [True, False]
    assert [limit.take(1002.1) for _ in range(4)] == [True, True, True, False]


def test_each_key_has_its_own_and_the_one_unused_longest_is_forgotten() -> None:
    limits = TokenBuckets(0.0, 1, max_keys=2)
    assert [limits.take(key, 0.0) for key in ("a", "b", "a")] == [True, True, False]
    assert limits.take("c", 0.0)
    assert [limits.take("a", 0.0), limits.take("b", 0.0)] == [False, True]
