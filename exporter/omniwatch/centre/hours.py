"""Parse the hours in which a device is on, as the fleet file has them: "mo-fr 05:00-23:30"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

DAYS = ("mo", "tu", "we", "th", "fr", "sa", "su")
_DAY = f"({'|'.join(DAYS)})"
_HOURS = re.compile(rf"(?:{_DAY}(?:-{_DAY})? )?(\d\d):(\d\d)-(\d\d):(\d\d)")
DAY_MIN = 24 * 60
WEEK_MIN = 7 * DAY_MIN


class Hours(NamedTuple):
    """From `first` for `length` minutes, on each of these days of the week (0 is Monday)."""

    days: tuple[int, ...]
    first: int
    length: int


def parse(text: str) -> Hours:
    """Read "[DAY[-DAY] ]HH:MM-HH:MM"; an end that is not after its begin is of the next day. Raises ValueError."""
    found = _HOURS.fullmatch(text)
    wrong = ValueError(f'hours: expected like "mo-fr 05:00-23:30", got "{text}"')
    if found is None:
        raise wrong
    begin, end = (int(found[at]) * 60 + int(found[at + 1]) for at in (3, 5))
    if begin >= DAY_MIN or end > DAY_MIN or int(found[4]) > 59 or int(found[6]) > 59:
        raise wrong
    first = DAYS.index(found[1]) if found[1] else 0
    last = DAYS.index(found[2]) if found[2] else first if found[1] else 6
    days = tuple((first + at) % 7 for at in range((last - first) % 7 + 1))
    return Hours(days, begin, (end - begin) % DAY_MIN or DAY_MIN)


def is_on(hours: Sequence[Hours], now: datetime) -> bool:
    """Return whether a device with these hours is on at a local time; one without hours always is."""
    minute = now.weekday() * DAY_MIN + now.hour * 60 + now.minute
    return not hours or any(
        (minute - day * DAY_MIN - one.first) % WEEK_MIN < one.length for one in hours for day in one.days
    )
