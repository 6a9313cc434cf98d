"""Remember what became of one robot's messages. Pure: times are seconds of a clock that is never set."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Literal, NamedTuple

from omniwatch.bundle.bridge import Outcome, RobotReport, Undelivered
from omniwatch.notify.messages import Message
from omniwatch.notify.outbox import Waiting

KEPT = 50
"""So many messages that were given up, and outcomes, are remembered."""
Result = Literal["delivered", "later", "refused", "expired"]


class _Seen(NamedTuple):
    group: str
    result: Result
    t: float
    error: str


class Deliveries:
    """What a robot has taken and what it has not, until it takes a message again."""

    def __init__(self) -> None:
        self._failing_since: float | None = None
        self._error = ""
        self._lost: deque[Waiting] = deque(maxlen=KEPT)
        self._seen: deque[_Seen] = deque(maxlen=KEPT)

    def note(self, parts: Iterable[Message], result: Result, error: str, now: float) -> None:
        """Take down an attempt with these messages, or that they were given up."""
        for part in parts:
            self._seen.append(_Seen(part.group, result, now, error))
        if result == "delivered":
            self._failing_since, self._error = None, ""
            self._lost.clear()
        else:
            self._failing_since = now if self._failing_since is None else self._failing_since
            # That it waited too long is not why.
            self._error = self._error if result == "expired" and self._error else error

    def lose(self, lost: Iterable[Waiting]) -> None:
        """Take down messages that will not be tried again."""
        self._lost.extend(lost)

    def report(
        self, robot: str, severities: list[str], waiting: Iterable[Waiting], now: float
    ) -> RobotReport:
        """Say it all; what waits behind a robot that takes messages is not undelivered."""
        failing = self._failing_since is not None
        undelivered = [*self._lost, *(waiting if failing else ())]
        return RobotReport(
            robot,
            severities,
            now - self._failing_since if self._failing_since is not None else None,
            self._error,
            [Undelivered(one.message.title, now - one.since) for one in undelivered],
            [Outcome(one.group, one.result, now - one.t, one.error) for one in self._seen],
        )
