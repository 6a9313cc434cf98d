"""Reckon from a connection's bytes what speech has arrived, and when. Pure.

The server counts bytes that it handed on, the kernel bytes on the wire: framing, TLS and compression lie between. Pairs of the
two, taken while nothing waits between them, say which byte on the wire is the last of a message.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from itertools import pairwise
from math import inf
from typing import NamedTuple

from omniwatch.events import Turn
from omniwatch.tap.inet_diag import FIN_WAIT2, TIME_WAIT, UNMEASURED_US, Fault, SocketReport

MAX_PAIRS = 64
MAX_ACKS = 64
FRESH_S = 0.03
"""What was sent so much more than a round trip before its acknowledgement did not stand still on its way."""
IN_VAIN = 0.75
"""Where this share of what was sent again came for the second time, acknowledgements are lost and no speech."""
MOST_DEFLATED = 1100
"""Bytes that deflate puts into one, at most (RFC 1951: 1032), with room for framing."""


class Speech:
    """One turn's speech: what of it was handed on, and what has arrived.

    The event loop writes `handed_ms`, `is_carried` and `is_held`; what has arrived is the ear's thread's to write.
    """

    __slots__ = (
        "arrived_m",
        "arrived_ms",
        "congestion",
        "handed_ms",
        "is_carried",
        "is_deaf",
        "is_followed",
        "is_held",
        "paused_s",
        "retrans",
        "stream",
        "tell_m",
        "turn",
        "window_us",
    )

    def __init__(self, stream: str, turn: Turn) -> None:
        self.stream = stream
        self.turn = turn
        self.handed_ms = 0.0
        self.is_carried = False
        """Whether a middleware outside the tap hands it to the network, by connections of its own."""
        self.is_held = False
        """Whether that middleware may still send it."""
        self.is_followed = False
        """Whether the thread has been told of it, though no connection carries it."""
        self.is_deaf = False
        """Whether it is no longer known what arrives."""
        self.arrived_ms = 0.0
        self.arrived_m = 0.0
        """When the last that arrived did."""
        self.tell_m = 0.0
        """When an event is due, though nothing has arrived."""
        self.congestion = ""
        """What was last told of its connection."""
        self.retrans = 0
        self.window_us = 0
        self.paused_s = 0.0

    @property
    def is_on_its_way(self) -> bool:
        """Whether something was handed on that has not arrived."""
        return self.arrived_ms < self.handed_ms


class Mark(NamedTuple):
    """The end of a message with speech."""

    end: int
    """Bytes handed on by its connection, this message included."""
    ms: float
    """Speech of the turn up to here."""
    speech: Speech
    handed_m: float


class Arrival(NamedTuple):
    """A message that the listener has."""

    mark: Mark
    m: float


class Pairs:
    """Bytes handed on, and the bytes of the kernel that they became."""

    def __init__(self) -> None:
        self._handed: list[int] = []
        self._given: list[int] = []
        self._rough: tuple[int, int] | None = None

    def __bool__(self) -> bool:
        return bool(self._handed)

    @property
    def newest(self) -> int:
        """The bytes handed on of the newest pair; before any, -1."""
        return self._handed[-1] if self._handed else -1

    def add(self, handed: int, given: int) -> bool:
        """Take a pair; False where it contradicts the one before.

        Two of the same `handed` both count: what ended there is at the first, what begins there follows the last.
        """
        if self._handed:
            more, grew = handed - self._handed[-1], given - self._given[-1]
            if more < 0 or grew < 0 or more > (grew + 1) * MOST_DEFLATED:
                return False
            if len(self._handed) > 1 and self._handed[-2] == handed:
                del self._handed[-1], self._given[-1]
        self._handed.append(handed)
        self._given.append(given)
        if len(self._handed) > MAX_PAIRS:
            del self._handed[0], self._given[0]
        return True

    def guess(self, handed: int, given: int) -> None:
        """Take a pair with bytes between its two ends, to go by until there is a true one."""
        self._rough = handed, given

    def given_at(self, handed: int) -> float | None:
        """Return the kernel's count at the end of so many bytes; None before there is anything to go by."""
        if not self._handed:
            return None if self._rough is None else float(self._rough[1] + handed - self._rough[0])
        at = bisect_left(self._handed, handed)
        if at == 0:
            return float(self._given[0] - (self._handed[0] - handed))
        if at == len(self._handed):
            return self._given[-1] + (handed - self._handed[-1]) * self._last_ratio()
        before, after = at - 1, at
        share = (handed - self._handed[before]) / (self._handed[after] - self._handed[before])
        return self._given[before] + share * (self._given[after] - self._given[before])

    def _last_ratio(self) -> float:
        first = bisect_left(self._handed, self._handed[-1])
        if first == 0:
            return 1.0
        more = self._handed[first] - self._handed[first - 1]
        return (self._given[first] - self._given[first - 1]) / more


class _Acked(NamedTuple):
    """Bytes up to `upto` were acknowledged evenly between two moments."""

    upto: int
    begin_m: float
    end_m: float


class _Sent(NamedTuple):
    """By a question's moment so many bytes had been sent, and so many segments sent again."""

    m: float
    upto: int
    again: int


class Connection:
    """What the answers about one connection say of its messages."""

    def __init__(self) -> None:
        self.pairs = Pairs()
        self.marks: deque[Mark] = deque()
        """Messages that have not arrived. The event loop appends."""
        self.answer: SocketReport | None = None
        self._asked_m = 0.0
        self._acks: list[_Acked] = []
        self._sent: list[_Sent] = []
        self._last_m = 0.0

    @property
    def least_rtt_s(self) -> float:
        """The least round trip of the connection, by the kernel; the smoothed one where it was not measured."""
        info = self.answer.info if self.answer else None
        if info is None:
            return 0.0
        measured = 0 < info.min_rtt_us < UNMEASURED_US
        return (info.min_rtt_us if measured else info.rtt_us) / 1e6

    def take(
        self, answer: SocketReport, now_m: float, handed: int, *, settled: bool
    ) -> list[Arrival] | Fault:
        """Take an answer; return what has arrived since the one before, in order.

        `handed` is what was handed on when the question was asked, `settled` whether the server has surely written it.
        """
        info, before = answer.info, self.answer
        if info is None:
            # The kernel remembers a connection without its figures only once all was acknowledged.
            return self._rest(now_m)
        was = before.info if before else None
        given = info.bytes_acked + answer.queued
        if not answer.is_possible:
            return Fault("more acknowledged than was sent")
        if was and info.bytes_acked < was.bytes_acked:
            return Fault("a count that goes back")
        at_once = before is None or answer.surplus == before.surplus
        if settled and at_once and answer.has_room:
            if not self.pairs.add(handed, given):
                return Fault("counts that do not follow the messages")
        elif not self.pairs:
            self.pairs.guess(handed, given)
        self.answer = answer
        if was is None or info.bytes_acked > was.bytes_acked:
            self._note_ack(info.last_ack_recv_ms / 1000, now_m, before)
        self._asked_m = now_m
        self._sent.append(_Sent(now_m, given - info.notsent_bytes, info.total_retrans))
        del self._sent[:-MAX_ACKS]
        if answer.state in (FIN_WAIT2, TIME_WAIT):
            return self._rest(now_m)
        return self._arrived()

    def _note_ack(self, ago_s: float, now_m: float, before: SocketReport | None) -> None:
        info = self.answer.info if self.answer else None
        was = before.info if before else None
        assert info is not None
        end_m = max(now_m - ago_s, self._asked_m)
        begin_m = end_m
        if was is not None:
            if info.dsack_dups > was.dsack_dups and self._acks:
                # The client had them before: only the acknowledgement was lost.
                begin_m = end_m = self._acks[-1].end_m
            elif info.bytes_retrans == was.bytes_retrans and not was.sacked:
                # There was no hole, behind which all would have come at once.
                begin_m = self._asked_m
                if self.marks:
                    begin_m = max(begin_m, self.marks[0].handed_m + self.least_rtt_s)
        self._acks.append(_Acked(info.bytes_acked, min(begin_m, end_m), end_m))
        del self._acks[:-MAX_ACKS]

    def _arrived(self) -> list[Arrival]:
        found = []
        while self.marks and self._acks:
            mark = self.marks[0]
            given = self.pairs.given_at(mark.end)
            if given is None or given > self._acks[-1].upto:
                break
            self.marks.popleft()
            acked_m, due_m = self._acked_m(given), self._due_m(mark, given)
            found.append(self._arrival(mark, due_m if due_m < acked_m - FRESH_S else acked_m))
        return found

    def _due_m(self, mark: Mark, given: float) -> float:
        """Return when a message's acknowledgement was due, where a later one came in its stead; else infinity.

        What was sent later came through without delay, so the path stood open: what was sent before, and was last sent again before
        there could be an answer to it, was there a round trip after that.
        """
        rtt_s, ack, sent = self.least_rtt_s, self._acks[-1], self._sent
        newest = next((one for one in sent if one.upto >= ack.upto), None)
        own = next((one for one in sent if one.upto >= given), None)
        if newest is None or newest is own or ack.end_m - newest.m > rtt_s + FRESH_S:
            return inf
        info = self.answer.info if self.answer else None
        in_vain = info is not None and info.dsack_dups >= IN_VAIN * info.total_retrans
        left_m = mark.handed_m
        for before, one in pairwise(sent):
            if one.m <= mark.handed_m or before.m >= ack.end_m - rtt_s:
                continue
            if before.m > mark.handed_m and before.upto < given:
                left_m = one.m
            if one.again > before.again and not in_vain:
                left_m = one.m
        return max(left_m + rtt_s, self._acks[-2].end_m if len(self._acks) > 1 else 0.0)

    def _acked_m(self, given: float) -> float:
        at = len(self._acks) - 1
        while at and self._acks[at - 1].upto >= given:
            at -= 1
        ack = self._acks[at]
        if at == 0:
            return ack.end_m
        start = self._acks[at - 1].upto
        return ack.begin_m + (given - start) / (ack.upto - start) * (ack.end_m - ack.begin_m)

    def _arrival(self, mark: Mark, acked_m: float) -> Arrival:
        """Return when a message arrived: half of the least round trip before its acknowledgement, in the order sent."""
        rtt_s = self.least_rtt_s
        acked_m = max(acked_m, mark.handed_m + rtt_s)
        self._last_m = max(self._last_m, acked_m - rtt_s / 2)
        return Arrival(mark, self._last_m)

    def _rest(self, now_m: float) -> list[Arrival]:
        found = self._arrived()
        while self.marks:
            found.append(self._arrival(self.marks.popleft(), now_m))
        return found

    def closed(self, now_m: float) -> list[Arrival]:
        """Return what arrived of an answer that was whole, whose client then closed the connection."""
        return self._rest(now_m)
