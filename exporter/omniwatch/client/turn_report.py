"""Decide what the client reports of one turn, and when: its round trip, how much it has played, how long it starved. Pure."""

from __future__ import annotations

import re
from typing import Any

from omniwatch.client.playout import Playout

EACH_S = 1.0
"""Seconds between two reports."""
LINGER_S = 5.0
"""Seconds after the last speech was played for which a report that failed is repeated."""
REPEATED = (0, 409, 429, 500, 502, 503, 504)
"""Statuses after which the client reports again (0: no answer). After any other but 204 it stops."""
_ID = re.compile(r"[A-Za-z0-9_-]{16,64}")


class TurnReport:
    """What one turn reports. The underrun is the sum so far, so that a report without an answer can be repeated.

    A server believes no underrun longer than since the last report, by when that one reached it. So the client says no more
    than has passed since the answer to it, and the rest with the next.
    """

    def __init__(self, playout: Playout) -> None:
        self.due_at: float | None = None
        """When to report next; None where there is nothing to report, or no server that takes it."""
        self._playout = playout
        self._stream = ""
        self._asked_at = 0.0
        self._rtt_s: float | None = None
        self._is_rtt_confirmed = False
        self._ended_at: float | None = None
        self._sent_at = self._confirmed_at = 0.0
        self._confirmed_s = self._reported_s = 0.0
        self._is_last = False

    def asked(self, now: float) -> None:
        """Note that the question was sent, for the first time or again."""
        self._asked_at = now

    def begin(self, stream: str) -> None:
        """Take the id under which the server lets the client report, "" where it names none."""
        self._stream = stream if _ID.fullmatch(stream) else ""

    def heard(self, now: float) -> None:
        """Note speech."""
        if self._rtt_s is None and self._stream:
            self._rtt_s = now - self._asked_at
            self.due_at = self._confirmed_at = now

    def end(self, now: float) -> None:
        """Note the end of the turn; what is left is played and reported."""
        if self._ended_at is None:
            self._ended_at = now

    def stop(self) -> None:
        """Report nothing more."""
        self.due_at, self._stream = None, ""

    def body(self, now: float) -> dict[str, Any]:
        """Return the report to send now."""
        playout = self._playout
        self._sent_at = now
        until = now if self._ended_at is None else self._ended_at
        self._reported_s = min(playout.starved_s(until), self._confirmed_s + now - self._confirmed_at)
        self._is_last = self._ended_at is not None and now >= (playout.dry_at or 0.0)
        body: dict[str, Any] = {
            "stream": self._stream,
            "played_ms": round(playout.played_s(now) * 1000, 3),
            "underrun_ms": round(self._reported_s * 1000, 3),
        }
        if self._rtt_s is not None and not self._is_rtt_confirmed:
            body["rtt_ms"] = round(self._rtt_s * 1000, 3)
        return body

    def answered(self, now: float, status: int) -> None:
        """Take the answer to the report, 0 where there was none."""
        if not self._stream:
            return
        if status == 204:
            self._is_rtt_confirmed = True
            self._confirmed_at, self._confirmed_s = now, self._reported_s
        late_s = now - (self._playout.dry_at or 0.0)
        if status not in (204, *REPEATED) or (self._is_last and (status == 204 or late_s > LINGER_S)):
            self.stop()
        else:
            self.due_at = max(now, self._sent_at + EACH_S)
