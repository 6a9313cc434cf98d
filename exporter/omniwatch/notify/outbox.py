"""Schedule one robot's messages: when the next may leave, and which are merged. Pure: no clock, no network."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from omniwatch.notify.messages import Escape, Message, merge

MINUTE_S = 60.0
MAX_WAITING, MAX_WAITING_CHARS = 1000, 1 << 20
"""Messages that wait for one robot at most, and their characters in all."""
FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 60.0


class Waiting(NamedTuple):
    """A message that has not left yet, and since when its news waits."""

    since: float
    message: Message


class Outbox:
    """The messages for one robot, pages first, then in the order they came; one per group.

    Times are seconds of a clock that is never set. `fits` says whether the robot takes a message uncut, `escape` writes plain text for it.
    """

    def __init__(
        self,
        per_minute: int,
        try_for_s: float,
        language: str,
        fits: Callable[[Message], bool],
        escape: Escape = str,
    ) -> None:
        self._per_minute = per_minute
        self._try_for_s = try_for_s
        self._language = language
        self._fits = fits
        self._escape = escape
        self._waiting: dict[str, Waiting] = {}
        self._attempts: deque[float] = deque()
        self._retry_s = FIRST_RETRY_S
        self._not_before = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def waiting(self) -> list[Waiting]:
        """All that has not left yet, in the order it came."""
        return list(self._waiting.values())

    def put(self, message: Message, since: float) -> list[Waiting]:
        """Take a message; an older one of its group has nothing to say any more, but that it was to call people.

        Returns those that had to make room: tickets before pages, the oldest first.
        """
        older = self._waiting.pop(message.group, None)
        if older is not None and older.message.first:
            message = message._replace(first=True)
        self._waiting[message.group] = Waiting(since, message)
        return [*self._make_room()]

    def _make_room(self) -> Iterator[Waiting]:
        chars = sum(_chars(found) for found in self._waiting.values())
        while len(self._waiting) > MAX_WAITING or (chars > MAX_WAITING_CHARS and len(self._waiting) > 1):
            gone = min(self._waiting.values(), key=lambda found: found.message.severity == "page")
            del self._waiting[gone.message.group]
            chars -= _chars(gone)
            yield gone

    def expire(self, now: float) -> list[Waiting]:
        """Give up, and return, what has waited for too long."""
        late = [found for found in self._waiting.values() if now - found.since >= self._try_for_s]
        for found in late:
            del self._waiting[found.message.group]
        return late

    def wait_s(self, now: float) -> float | None:
        """Return the seconds until the next attempt may be made; None when there is nothing to send."""
        if not self._waiting:
            return None
        self._forget(now)
        full = len(self._attempts) >= self._per_minute
        free_at = self._attempts[0] + MINUTE_S if full else now
        return max(0.0, free_at - now, self._not_before - now)

    def take(self, now: float) -> tuple[Message, list[Message]]:
        """Count an attempt and return what to send, and the messages it is made of.

        With the minute's last attempt, as much of what waits goes as one as fits. Raises IndexError when nothing waits.
        """
        self._forget(now)
        order = [found.message for found in self._waiting.values()]
        order.sort(key=lambda message: message.severity != "page")
        taken, parts = order[0], order[:1]
        if len(self._attempts) >= self._per_minute - 1:
            for count in range(2, len(order) + 1):
                merged = merge(order[:count], self._language, self._escape)
                if not self._fits(merged):
                    break
                taken, parts = merged, order[:count]
        self._attempts.append(now)
        return taken, parts

    def settled(self, parts: list[Message]) -> None:
        """Take away what was delivered, or refused for good, unless news of its group came meanwhile."""
        for part in parts:
            found = self._waiting.get(part.group)
            if found is not None and found.message is part:
                del self._waiting[part.group]
        self._retry_s, self._not_before = FIRST_RETRY_S, 0.0

    def failed(self, now: float) -> None:
        """Wait before the next attempt, twice as long each time."""
        self._not_before = now + self._retry_s
        self._retry_s = min(2 * self._retry_s, LONGEST_RETRY_S)

    def _forget(self, now: float) -> None:
        while self._attempts and self._attempts[0] <= now - MINUTE_S:
            self._attempts.popleft()


def _chars(found: Waiting) -> int:
    return len(found.message.group) + len(found.message.title) + len(found.message.text)
