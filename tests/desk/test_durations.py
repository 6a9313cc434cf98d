"""Durations are read as Prometheus reads them."""

from __future__ import annotations

import pytest

from omniwatch.desk import durations


@pytest.mark.parametrize(
    ("text", "length_s"),
    [("", 0), ("0", 0), (0, 0), ("15s", 15), ("1m30s", 90), ("5m", 300), ("1d2h", 93_600), ("250ms", 0.25)],
)
def test_durations_are_prometheus(text, length_s):
    assert durations.seconds(text) == length_s


@pytest.mark.parametrize("text", ["5", "s", "1.5s", "1s1m", "five"])
def test_what_is_no_duration_is_said(text):
    with pytest.raises(ValueError, match=f"expected a duration such as 15s or 1m30s, got {text!r}"):
        durations.seconds(text)


def test_fractions_are_read_where_they_are_asked_for():
    assert durations.seconds("1.5h", fractions=True) == 5400
