"""Choose which round trip of a stream is shown, and for how long: one late answer alone must not complete a `for`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

Turn = str | int | None
UNREPORTED_MOST = 2
"""Answers in a row without a client's report after which the server's estimate counts at once again."""


class Lateness(NamedTuple):
    """When an answer is late, and how long late ones are shown. Times in seconds."""

    limit_ms: float
    """An answer over this is late."""
    in_a_row: int
    """Late answers in a row that are shown as any other."""
    shown_s: float
    """Fewer are shown for this long after the first of them became visible."""
    absent_s: float
    """Then the series is absent for at least this long: two evaluations, so that a pending alert is dropped."""

    @classmethod
    def of(
        cls, limit_ms: float, for_s: float, in_a_row: int, *, evaluation_s: float, scrape_s: float
    ) -> Lateness:
        """Return the terms that keep fewer than `in_a_row` late answers from lasting `for_s` seconds.

        A `for` of two evaluations or less leaves no room for that: each answer is then shown at once.
        """
        if in_a_row == 1 or for_s <= 2 * evaluation_s:
            return cls(limit_ms, 1, float("inf"), 0.0)
        shown_s = max(0.0, for_s - evaluation_s - scrape_s)
        return cls(limit_ms, in_a_row, shown_s, max(2 * evaluation_s, evaluation_s + scrape_s))


class LateAnswers(NamedTuple):
    """The late answers since the last one in time. A spell is a time in which late answers were shown without a real gap."""

    late: int = 0
    spell_t: float = float("-inf")
    """When the spell began, or, after a gap that is still to come, will begin."""
    quiet_t: float = float("-inf")
    """When a late answer was shown last, once the row is over."""

    def then(self, t: float, late: bool, terms: Lateness) -> LateAnswers:
        """Return the row after one more answer, shown from t on."""
        if not late:
            return self._over(t, terms) if self.late else self
        fresh = not self.late and t >= self.quiet_t + terms.absent_s
        spell_t = t if fresh else self.spell_t
        hidden_t = spell_t + terms.shown_s
        if self.late + 1 == terms.in_a_row and t > hidden_t:
            spell_t = max(t, hidden_t + terms.absent_s)
        return LateAnswers(self.late + 1, spell_t, self.quiet_t)

    def _over(self, t: float, terms: Lateness) -> LateAnswers:
        if t < self.spell_t:
            return LateAnswers(0, self.spell_t, self.spell_t - terms.absent_s)
        hidden_t = t if self.late >= terms.in_a_row else min(t, self.spell_t + terms.shown_s)
        return LateAnswers(0, self.spell_t, hidden_t)

    def shown_at(self, now: float, terms: Lateness) -> bool:
        """Return whether the last answer is shown: one in time always, a late one within its spell."""
        if not self.late:
            return True
        in_spell = self.late >= terms.in_a_row or now < self.spell_t + terms.shown_s
        return self.spell_t <= now and in_spell

    def set_back(self, by_s: float) -> LateAnswers:
        """Return the row on a clock that was set back by so much."""
        return LateAnswers(self.late, self.spell_t - by_s, self.quiet_t - by_s)


@dataclass(slots=True)
class Answers:
    """The answers of one stream. Each counts once: the client's value replaces the server's estimate."""

    rtt_ms: float | None = None
    """The round trip of the answer that counted last."""
    vantage: str = "server"
    """Who measured it."""
    t: float = 0.0
    """When it counted."""
    row: LateAnswers = field(default_factory=LateAnswers)
    before: LateAnswers = field(default_factory=LateAnswers)
    """The row without that answer."""

    turn: Turn = None
    """The turn of the newest answer that the server gave."""
    reported: bool = True
    """Whether the client said how long that one took, or nothing is to be reported."""
    waiting_ms: float | None = None
    """The server's estimate of that answer while the client's report is waited for."""
    trusts_client: bool = False
    unreported: int = 0
    """Answers in a row that the client did not report."""
    said: tuple[Turn, float] | None = None
    """The client's last report since the newest answer, to know it when it is repeated."""
    ahead: bool = False
    """That report was of a turn whose speech had not begun."""

    def answered(self, t: float, rtt_ms: float, turn: Turn, terms: Lateness) -> None:
        """Take the first speech of a turn, known at t, `rtt_ms` after its text at the server."""
        if self.waiting_ms is not None:
            self._count(t, self.waiting_ms, "server", terms)
            self.waiting_ms = None
        if not self.reported:
            self.unreported += 1
            self.trusts_client &= self.unreported < UNREPORTED_MOST
        self.turn = turn
        self.reported = turn is not None and self.said is not None and self.ahead and self.said[0] == turn
        if self.reported:
            self.ahead = False
            return
        self.said = None
        if self.trusts_client:
            self.waiting_ms = rtt_ms
        else:
            self._count(t, rtt_ms, "server", terms)

    def report(self, t: float, rtt_ms: float, turn: Turn, terms: Lateness) -> None:
        """Take the client's own measurement. A repeated one counts once; one without an answer to it stands for itself."""
        if turn is not None and self.said == (turn, rtt_ms):
            return
        self.said, self.ahead = (turn, rtt_ms), turn not in (None, self.turn)
        of_newest = not self.reported and turn in (None, self.turn)
        if of_newest and self.waiting_ms is None:
            self._replace(t, rtt_ms, "client", terms)
        else:
            self._count(t, rtt_ms, "client", terms)
        if of_newest:
            self.reported, self.waiting_ms = True, None
        self.trusts_client, self.unreported = True, 0

    def shown_ms(self, now: float, terms: Lateness) -> float | None:
        """Return the round trip to show at `now`, None while none is."""
        return self.rtt_ms if self.row.shown_at(now, terms) else None

    def set_back(self, by_s: float) -> None:
        """Move to a clock that was set back by so much."""
        self.t -= by_s
        self.row, self.before = self.row.set_back(by_s), self.before.set_back(by_s)

    def _count(self, t: float, rtt_ms: float, vantage: str, terms: Lateness) -> None:
        self.before = self.row
        self.row = self.row.then(t, rtt_ms > terms.limit_ms, terms)
        self.rtt_ms, self.vantage, self.t = rtt_ms, vantage, t

    def _replace(self, t: float, rtt_ms: float, vantage: str, terms: Lateness) -> None:
        """Put another value in the place of the last answer's; one that stays late has been shown since it counted."""
        was_late = self.rtt_ms is not None and self.rtt_ms > terms.limit_ms
        self.row = self.before
        self._count(self.t if was_late else t, rtt_ms, vantage, terms)
