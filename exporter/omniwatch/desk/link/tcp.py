"""One direction of a TCP connection in virtual time: a sender as Linux has it, a receiver, and the network between. Pure.

The sender has a congestion window, selective acknowledgements, loss detection by time (RACK, RFC 8985) with tail loss probes,
proportional rate reduction (RFC 6937), the retransmission timer with its backoff, F-RTO and the taking back of reductions
that no loss called for. The receiver delays acknowledgements. Left out: the receiver's window, which here is always open.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

from omniwatch.desk.link.bbr import Bbr
from omniwatch.desk.link.congestion import INITIAL_WINDOW, NO_THRESHOLD, Control, Cubic, Reno, Sample

SEGMENT_BYTES = 1448
"""Payload of one segment: 1500 bytes less IPv4 and TCP headers with timestamps."""
HEADER_BYTES = 52
ACK_BYTES = 52
LEAST_RTO_S = 0.2
"""TCP_RTO_MIN: the least that Linux adds to the smoothed round trip."""
FIRST_RTO_S = 1.0
MOST_RTO_S = 120.0
DELAYED_ACK_S = 0.04
QUICK_ACKS = 16
"""So many segments a receiver acknowledges at once when a connection is new or was idle."""
BLOCKS = 3
"""Selective acknowledgements that fit beside a timestamp."""
TICK_S = 0.008
"""TCP_TIMEOUT_MIN: two ticks of a kernel with 250 a second."""
DUPLICATES = 3

TICK_LEVELS = ((0.256, 0.004), (2.048, 0.032), (16.384, 0.256), (float("inf"), 2.048))
"""Linux' timer wheel with 250 ticks a second: what is due within so many seconds fires on a multiple of so many."""

OPEN, DISORDER, REDUCED, RECOVERY, LOSS = range(5)
NO_TIMER, RETRANSMIT, PROBE, REORDER = range(4)
DATA, ACK = range(2)

Carry = Callable[[float, int], "float | None"]
"""Give the network a packet of so many bytes at a time; return when it arrives, None where it is lost."""
Ranges = list[tuple[int, int]]

CONTROLS: dict[str, Callable[[random.Random], Control]] = {
    "cubic": lambda rng: Cubic(),
    "reno": lambda rng: Reno(),
    "bbr": Bbr,
}
"""Linux' congestion controls that can be modelled, by its own names."""


class _Segment:
    """What was sent, and what is known of it."""

    __slots__ = (
        "again",
        "app_limited",
        "delivered",
        "delivered_at",
        "end",
        "first_at",
        "lost",
        "repeated",
        "sacked",
        "sent_at",
        "seq",
    )

    def __init__(self, seq: int, end: int) -> None:
        self.seq = seq
        self.end = end
        self.sacked = False
        self.lost = False
        self.again = False
        """A retransmission of it is under way."""
        self.repeated = False
        """It was retransmitted at some time."""
        self.sent_at = self.first_at = self.delivered_at = 0.0
        self.delivered = 0
        self.app_limited = False


class _Receiver:
    """Puts segments in order and decides what to acknowledge when."""

    def __init__(self) -> None:
        self.next = 0
        self.blocks: Ranges = []
        """What came out of order, the latest first."""
        self.ack_at: float | None = None
        self.echo = 0.0
        """The timestamp that acknowledgements send back."""
        self._acked = 0
        self._quick = QUICK_ACKS
        self._heard_at = 0.0

    def take(self, now: float, seq: int, end: int, sent_at: float) -> tuple[bool, bool]:
        """Take a segment; return whether to acknowledge at once, and whether it was there already."""
        if seq <= self._acked <= end:
            # RFC 7323, 4.3. What is older is answered before its timestamp is looked at.
            self.echo = sent_at
        if now - self._heard_at > LEAST_RTO_S * 1.5:
            self._quick = QUICK_ACKS
        self._heard_at = now
        if end <= self.next or any(first <= seq and end <= last for first, last in self.blocks):
            return True, True
        if seq > self.next:
            first, last = seq, end
            kept = []
            for block in self.blocks:
                if block[1] < first or last < block[0]:
                    kept.append(block)
                else:
                    first, last = min(first, block[0]), max(last, block[1])
            self.blocks = [(first, last), *kept]
            return True, False
        had_gap = bool(self.blocks)
        self.next = end
        if had_gap:
            for first, last in sorted(self.blocks):
                if first <= self.next:
                    self.next = max(self.next, last)
            self.blocks = [block for block in self.blocks if block[0] > self.next]
        # A short segment ends what was written: the application reads it, and nothing is left to wait for.
        at_once = had_gap or end - seq < SEGMENT_BYTES or end - self._acked > SEGMENT_BYTES
        if self._quick:
            self._quick -= 1
            at_once = True
        if not at_once and self.ack_at is None:
            self.ack_at = now + DELAYED_ACK_S
        return at_once, False

    def acknowledge(self) -> tuple[int, Ranges]:
        """Return what an acknowledgement says now."""
        self.ack_at = None
        self._acked = self.next
        return self.next, self.blocks[:BLOCKS]


class Flow:
    """One direction. `write` at what time it is, `advance` to later times; `arrived` is what the reader has got.

    `first_rtt_s` is what the handshake took, if it is known.
    """

    def __init__(
        self, data: Carry, acks: Carry, congestion: str, rng: random.Random, first_rtt_s: float | None = None
    ) -> None:
        self.control = CONTROLS[congestion](rng)
        self.arrived: deque[tuple[float, int]] = deque()
        """When how many bytes were there, in order."""
        self.sent_bytes = 0
        """Bytes sent, headers and repetitions included."""
        self._data, self._acks = data, acks
        self._receiver = _Receiver()
        self._events: list[tuple[float, int, int, tuple[object, ...]]] = []
        self._number = 0
        self._written = 0
        self._next = 0
        self._una = 0
        self._out: deque[_Segment] = deque()
        self._sacked = self._lost = self._again = 0
        self._state = OPEN
        self._high = 0
        self._timer_at, self._timer = 0.0, NO_TIMER
        self._pace_at = 0.0
        # Round trip and timeout.
        self._srtt_s = self._mdev_s = self._mdev_max_s = self._rttvar_s = 0.0
        self._rtt_seq = 0
        self._min_rtt_s = float("inf")
        self._rto_s = FIRST_RTO_S
        self._backoff = 0
        self._sent_at = float("-inf")
        # RACK: the latest sent of what has arrived.
        self._rack_at, self._rack_end, self._rack_rtt_s = -1.0, 0, 0.0
        self._probe_end: int | None = None
        self._probe_repeated = False
        # Reduction of the window, and its taking back.
        self._prior_window = 0.0
        self._prr_delivered = self._prr_out = 0
        self._undo_from: int | None = None
        self._undo_left = -1
        self._undo_window, self._undo_threshold = 0.0, NO_THRESHOLD
        self._frto = False
        # Whether the window is used.
        self._limited = False
        self._most_out = 0
        self._usage_end = 0
        self._window_used = 0
        self._window_at = 0.0
        # Delivery rate.
        self._delivered = 0
        self._delivered_at = self._first_at = 0.0
        self._app_limited = 0
        self._losses = 0
        self._ack_span_s = 0.0
        self._now = 0.0
        self._phase_s = rng.uniform(0, TICK_LEVELS[-1][1])
        if first_rtt_s is not None:
            self._measure_rtt(first_rtt_s)
            if isinstance(self.control, Bbr):
                self.control.first_rtt(first_rtt_s)

    @property
    def under_way(self) -> int:
        """Bytes that were written and have not arrived in order."""
        return self._written - self._receiver.next

    def write(self, now: float, size: int) -> None:
        """Send `size` more bytes."""
        self._now = now
        self._note_app_limited()
        if not self._out and self._next == self._written:
            self._resume(now)
        self._written += size
        self._send(now)

    def due(self) -> float | None:
        """Return when something happens next, if nothing is written before."""
        times = [self._events[0][0]] if self._events else []
        if self._timer:
            times.append(self._timer_at)
        if self._receiver.ack_at is not None:
            times.append(self._receiver.ack_at)
        if self._waits_for_pace():
            times.append(max(self._now, self._pace_at))
        return min(times, default=None)

    def advance(self, now: float) -> None:
        """Let happen what happens until `now`."""
        while (due := self.due()) is not None and due <= now:
            self._now = max(self._now, due)
            if self._events and self._events[0][0] <= due:
                at, _, kind, what = heappop(self._events)
                if kind == DATA:
                    self._arrive(at, *what)  # type: ignore[arg-type]  # what was pushed as such
                else:
                    self._acknowledged(at, *what)  # type: ignore[arg-type]  # what was pushed as such
            elif self._receiver.ack_at is not None and self._receiver.ack_at <= due:
                self._acknowledge(due, None)
            elif self._timer and self._timer_at <= due:
                self._expire(due)
            else:
                self._repeat(due)
                self._send(due)

    # The receiver's end.

    def _push(self, at: float, kind: int, *what: object) -> None:
        self._number += 1
        heappush(self._events, (at, self._number, kind, what))

    def _arrive(self, now: float, seq: int, end: int, sent_at: float) -> None:
        before = self._receiver.next
        at_once, known = self._receiver.take(now, seq, end, sent_at)
        if self._receiver.next > before:
            self.arrived.append((now, self._receiver.next - before))
        if at_once:
            self._acknowledge(now, (seq, end) if known else None)

    def _acknowledge(self, now: float, duplicate: tuple[int, int] | None) -> None:
        upto, blocks = self._receiver.acknowledge()
        at = self._acks(now, ACK_BYTES)
        if at is not None:
            blocks = blocks if duplicate is None else blocks[: BLOCKS - 1]
            self._push(at, ACK, upto, blocks, duplicate, self._receiver.echo)

    # Sending.

    @property
    def _in_flight(self) -> int:
        return len(self._out) - self._sacked - self._lost + self._again

    def _resume(self, now: float) -> None:
        """Restart from a smaller window after a time of silence (RFC 2861)."""
        idle_s = now - self._sent_at
        if idle_s == float("inf"):
            return
        self.control.resumed(now, idle_s)
        if self.control.measures or idle_s <= self._rto_s:
            return
        self.control.threshold = self._current_threshold()
        least = min(INITIAL_WINDOW, self.control.window)
        idle_s -= self._rto_s
        while idle_s > 0 and self.control.window > least:
            self.control.window //= 2
            idle_s -= self._rto_s
        self.control.window = max(self.control.window, least)
        self._window_at, self._window_used = now, 0

    def _current_threshold(self) -> float:
        if self._state in (REDUCED, RECOVERY):
            return self.control.threshold
        return max(self.control.threshold, self.control.window // 2 + self.control.window // 4)

    def _waits_for_pace(self) -> bool:
        if not self.control.measures or self._in_flight >= self.control.window:
            return False
        return self._next < self._written or self._lost > self._again

    def _paced(self, now: float) -> bool:
        return self.control.measures and now < self._pace_at

    def _transmit(self, now: float, segment: _Segment) -> None:
        if not self._out:
            self._first_at = self._delivered_at = now
        segment.sent_at = now
        segment.first_at, segment.delivered_at = self._first_at, self._delivered_at
        segment.delivered = self._delivered
        segment.app_limited = bool(self._app_limited)
        size = segment.end - segment.seq
        self.sent_bytes += size + HEADER_BYTES
        self._pace_at = max(self._pace_at, now) + self.control.pause_s(1) * (size + HEADER_BYTES) / 1500
        at = self._data(now, size + HEADER_BYTES)
        if at is not None:
            self._push(at, DATA, segment.seq, segment.end, now)

    def _send_one(self, now: float) -> None:
        segment = _Segment(self._next, min(self._written, self._next + SEGMENT_BYTES))
        was_empty = not self._out
        self._transmit(now, segment)
        self._out.append(segment)
        self._next = segment.end
        self._sent_at = now
        if was_empty or self._timer == PROBE:
            self._rearm(now)

    def _send(self, now: float) -> None:
        """Send what the window (and the pace) allows of what was not sent before."""
        sent = 0
        while self._next < self._written and not self._paced(now) and self._in_flight < self.control.window:
            self._send_one(now)
            sent += 1
        limited = self._in_flight >= self.control.window
        if sent or limited:
            self._note_usage(now, limited)
        if sent:
            if self._state in (REDUCED, RECOVERY):
                self._prr_out += sent
            self._arm_probe(now, restarts=False)

    def _note_usage(self, now: float, limited: bool) -> None:
        out = len(self._out)
        if self._una >= self._usage_end or limited or (not self._limited and out > self._most_out):
            self._limited, self._most_out, self._usage_end = limited, out, self._next
        if self._uses_window():
            self._window_used, self._window_at = 0, now
            return
        self._window_used = max(self._window_used, out)
        if now - self._window_at >= self._rto_s and not self.control.measures:
            used = max(self._window_used, INITIAL_WINDOW)
            if self._state == OPEN and used < self.control.window:
                self.control.threshold = self._current_threshold()
                self.control.window = (self.control.window + used) // 2
            self._window_used, self._window_at = 0, now

    def _uses_window(self) -> bool:
        if self._limited:
            return True
        slow_start = self.control.window < self.control.threshold
        return slow_start and self.control.window < 2 * self._most_out

    def _note_app_limited(self) -> None:
        unsent = self._written - self._next
        if unsent < SEGMENT_BYTES and self._in_flight < self.control.window and self._lost <= self._again:
            self._app_limited = max(1, self._delivered + self._in_flight)

    def _repeat(self, now: float) -> None:
        """Send lost segments again as the window allows."""
        if self._lost <= self._again:
            return
        for segment in self._out:
            if self._paced(now) or self._in_flight >= self.control.window or self._again >= self._lost:
                return
            if segment.lost and not segment.again and not segment.sacked:
                self._repeat_one(now, segment)
                if self._state in (REDUCED, RECOVERY):
                    self._prr_out += 1
                if segment is self._out[0] and self._timer != REORDER:
                    self._set_timer(now, RETRANSMIT, self._rto_s)

    def _repeat_one(self, now: float, segment: _Segment) -> None:
        if not segment.again:
            segment.again = True
            self._again += 1
        segment.repeated = True
        self._undo_left = max(0, self._undo_left) + 1
        self._transmit(now, segment)

    # Timers.

    def _set_timer(self, now: float, timer: int, pause_s: float) -> None:
        step_s = next(step_s for below_s, step_s in TICK_LEVELS if pause_s < below_s)
        self._timer = timer
        self._timer_at = ((now + pause_s + self._phase_s) // step_s + 1) * step_s - self._phase_s

    def _left_s(self, now: float) -> float:
        """Return how long the retransmission timeout of the first segment has to go."""
        return self._out[0].sent_at + self._rto_s - now

    def _rearm(self, now: float) -> None:
        if not self._out:
            self._timer = NO_TIMER
            return
        pause_s = self._rto_s
        if self._timer in (PROBE, REORDER):
            pause_s = max(self._left_s(now), TICK_S)
        self._set_timer(now, RETRANSMIT, pause_s)

    def _arm_probe(self, now: float, *, restarts: bool) -> bool:
        """Set a tail loss probe, where one may be sent."""
        if not self._out or self._state not in (OPEN, REDUCED):
            return False
        pause_s = FIRST_RTO_S
        if self._srtt_s:
            pause_s = 2 * self._srtt_s + (LEAST_RTO_S if len(self._out) == 1 else TICK_S)
        left_s = self._rto_s if restarts else self._left_s(now)
        if left_s > 0:
            pause_s = min(pause_s, left_s)
        self._set_timer(now, PROBE, pause_s)
        return True

    def _expire(self, now: float) -> None:
        timer, self._timer = self._timer, NO_TIMER
        if timer == REORDER:
            self._timer = REORDER
            before = self._in_flight
            self._detect(now)
            if self._in_flight != before:
                if self._state != RECOVERY:
                    self._enter_recovery()
                    if not self.control.measures:
                        self._reduce(1, self._lost, advanced=False)
                self._repeat(now)
            if self._timer != RETRANSMIT:
                self._rearm(now)
        elif timer == PROBE:
            self._probe(now)
        elif self._out:
            self._time_out(now)

    def _probe(self, now: float) -> None:
        if self._probe_end is not None:
            self._timer = PROBE
            self._rearm(now)
            return
        self._probe_repeated = self._next >= self._written
        if self._probe_repeated:
            last = self._out[-1]
            last.repeated = True
            self._transmit(now, last)
        else:
            self._send_one(now)
        self._probe_end = self._next
        self._timer = NO_TIMER
        self._rearm(now)

    def _time_out(self, now: float) -> None:
        for segment in self._out:
            segment_is_new = (
                segment is not self._out[0]
                and segment.sent_at + self._rack_rtt_s > now
                and self._rack_at >= 0
            )
            if segment.sacked or segment_is_new:
                continue
            self._mark_lost(segment)
        if self._state <= DISORDER or self._una >= self._high or (self._state == LOSS and not self._backoff):
            self._remember()
            self.control.threshold = self.control.reduced()
            self._begin_undo()
        self.control.timed_out()
        self._probe_end = None
        self.control.window = self._in_flight + 1
        self._frto = self._state < RECOVERY or self._backoff > 0
        self._state = LOSS
        self._high = self._next
        self._repeat_one(now, self._out[0])
        self._backoff += 1
        self._rto_s = min(MOST_RTO_S, 2 * self._rto_s)
        self._set_timer(now, RETRANSMIT, self._rto_s)

    # What acknowledgements tell.

    def _measure_rtt(self, rtt_s: float) -> None:
        self._min_rtt_s = min(self._min_rtt_s, rtt_s)
        if not self._srtt_s:
            self._srtt_s = rtt_s
            self._mdev_s = 2 * rtt_s
            self._rttvar_s = self._mdev_max_s = max(self._mdev_s, LEAST_RTO_S)
            self._rtt_seq = self._next
        else:
            off_s = rtt_s - self._srtt_s
            self._srtt_s += off_s / 8
            # Four times the deviation, as Linux keeps it; less weight where the round trip has become shorter.
            change_s = abs(off_s) - self._mdev_s / 4
            if off_s < 0 < change_s:
                change_s /= 8
            self._mdev_s += change_s
            if self._mdev_s > self._mdev_max_s:
                self._mdev_max_s = self._mdev_s
                self._rttvar_s = max(self._rttvar_s, self._mdev_max_s)
            if self._una > self._rtt_seq:
                if self._mdev_max_s < self._rttvar_s:
                    self._rttvar_s -= (self._rttvar_s - self._mdev_max_s) / 4
                self._rtt_seq = self._next
                self._mdev_max_s = LEAST_RTO_S
        self._backoff = 0
        self._rto_s = min(MOST_RTO_S, self._srtt_s + self._rttvar_s)

    def _mark_lost(self, segment: _Segment) -> None:
        if segment.again:
            segment.again = False
            self._again -= 1
            self._losses += 1
        if not segment.lost:
            segment.lost = True
            self._lost += 1
            self._losses += 1

    def _settle(self, now: float, segment: _Segment, sample: Sample) -> None:
        """Take note that a segment has arrived for the first time."""
        self._delivered += 1
        self._delivered_at = now
        if sample.prior_delivered < 0 or segment.sent_at >= self._first_at:
            sample.prior_delivered = segment.delivered
            sample.app_limited = segment.app_limited
            sample.interval_s = segment.sent_at - segment.first_at
            self._ack_span_s = now - segment.delivered_at
            self._first_at = segment.sent_at
        rtt_s = now - segment.sent_at
        if rtt_s < self._min_rtt_s and segment.repeated:
            return
        self._rack_rtt_s = rtt_s
        if (segment.sent_at, segment.end) > (self._rack_at, self._rack_end):
            self._rack_at, self._rack_end = segment.sent_at, segment.end

    def _detect(self, now: float) -> bool:
        """Mark segments lost that others have overtaken for long enough; return whether a timer is set for the rest."""
        if self._rack_at < 0:
            return False
        patience_s = 0.0
        if self._state < RECOVERY and self._sacked < DUPLICATES:
            patience_s = min(self._min_rtt_s / 4, self._srtt_s)
        longest_s = 0.0
        for segment in self._out:
            if segment.sacked or (segment.lost and not segment.again):
                continue
            if (segment.sent_at, segment.end) >= (self._rack_at, self._rack_end):
                continue
            left_s = self._rack_rtt_s + patience_s - (now - segment.sent_at)
            if left_s <= 0:
                self._mark_lost(segment)
            else:
                longest_s = max(longest_s, left_s)
        if longest_s:
            self._set_timer(now, REORDER, min(longest_s + TICK_S, self._rto_s))
        return longest_s > 0

    def _acknowledged(
        self, now: float, upto: int, blocks: Ranges, duplicate: tuple[int, int] | None, echo: float
    ) -> None:
        if upto < self._una:
            return
        prior_una, prior_delivered = self._una, self._delivered
        self._losses = 0
        self._ack_span_s = 0.0
        sample = Sample()
        sample.in_flight = self._in_flight
        if duplicate is not None and self._undo_from is not None and self._undo_left > 0:
            self._undo_left -= 1
        first_rtt_s = last_rtt_s = sack_rtt_s = -1.0
        original, repeated, sets_timer = False, False, False
        while self._out and self._out[0].end <= upto:
            segment = self._out.popleft()
            sets_timer = True
            if segment.again:
                self._again -= 1
            if segment.lost:
                self._lost -= 1
            if segment.sacked:
                self._sacked -= 1
            else:
                if segment.repeated:
                    repeated = True
                else:
                    last_rtt_s = now - segment.sent_at
                    first_rtt_s = last_rtt_s if first_rtt_s < 0 else first_rtt_s
                    original = original or segment.end <= self._high
                self._settle(now, segment, sample)
        self._una = max(self._una, upto)
        sacked = False
        if blocks:
            for segment in self._out:
                if segment.sacked or not any(a <= segment.seq and segment.end <= b for a, b in blocks):
                    continue
                sacked = segment.sacked = True
                self._sacked += 1
                if segment.lost:
                    segment.lost = False
                    self._lost -= 1
                if segment.again:
                    segment.again = False
                    self._again -= 1
                if not segment.repeated:
                    sack_rtt_s = now - segment.sent_at if sack_rtt_s < 0 else sack_rtt_s
                    original = original or segment.end <= self._high
                self._settle(now, segment, sample)
        if self._out and sack_rtt_s > now - self._out[0].sent_at:
            sets_timer = True
        advanced = upto > prior_una
        self._take_rtt(now, -1.0 if repeated else first_rtt_s, sack_rtt_s, echo if advanced else -1.0)
        sample.rtt_s = last_rtt_s if last_rtt_s >= 0 else sack_rtt_s
        if self._probe_end is not None:
            self._judge_probe(upto, advanced, sacked, duplicate)
        newly = self._delivered - prior_delivered
        again = self._alert(now, advanced, sacked, original, duplicate is not None, sets_timer)
        self._control(now, sample, newly, advanced)
        if again == "new":
            self._send(now)
        elif again == "lost":
            self._repeat(now)
        self._send(now)

    def _take_rtt(self, now: float, rtt_s: float, sack_rtt_s: float, echo: float) -> None:
        if rtt_s < 0:
            rtt_s = sack_rtt_s
        if rtt_s < 0 <= echo:
            rtt_s = now - echo
        if rtt_s >= 0:
            self._measure_rtt(rtt_s)

    def _judge_probe(
        self, upto: int, advanced: bool, sacked: bool, duplicate: tuple[int, int] | None
    ) -> None:
        assert self._probe_end is not None
        if upto < self._probe_end:
            return
        if not self._probe_repeated or duplicate is not None:
            self._probe_end = None
        elif upto > self._probe_end:
            # The probe mended a loss that would have gone unseen.
            self._probe_end = None
            if self._state < REDUCED:
                self._remember()
                self._begin_reduction()
                if self.control.threshold < NO_THRESHOLD:
                    self.control.window = self.control.threshold
        elif not advanced and not sacked:
            self._probe_end = None

    def _remember(self) -> None:
        self._undo_window = self.control.window
        self._undo_threshold = self._current_threshold()

    def _begin_undo(self) -> None:
        self._undo_from = self._una
        self._undo_left = self._again or -1

    def _begin_reduction(self) -> None:
        self._high = self._next
        self._probe_end = None
        self._prior_window = self.control.window
        self._prr_delivered = self._prr_out = 0
        self.control.threshold = self.control.reduced()

    def _enter_recovery(self) -> None:
        self._begin_undo()
        if self._state not in (REDUCED, RECOVERY):
            self._remember()
            self._begin_reduction()
        self._high = self._next
        self._state = RECOVERY

    def _may_undo(self) -> bool:
        return self._undo_from is not None and self._undo_left == 0

    def _undo(self, *, clears: bool = False) -> None:
        if clears:
            for segment in self._out:
                segment.lost = False
            self._lost = 0
        self.control.undone(self._undo_window)
        if self._undo_threshold > self.control.threshold:
            self.control.threshold = self._undo_threshold
        self._undo_from = None

    def _finish(self) -> None:
        """End a reduction."""
        if self.control.threshold < NO_THRESHOLD and not self.control.measures:
            self.control.window = self.control.threshold
        self._state = OPEN

    def _alert(
        self,
        now: float,
        advanced: bool,
        sacked: bool,
        original: bool,
        duplicate: bool,
        sets_timer: bool,
    ) -> str:
        """Change the state by what was learnt (tcp_fastretrans_alert); return what to send again: "", "lost" or "new"."""
        dubious = sacked or duplicate or self._state != OPEN or not advanced
        again = ""
        if dubious:
            if self._state == RECOVERY and self._una >= self._high:
                if self._may_undo():
                    self._undo()
                    self._state = OPEN
                else:
                    self._finish()
            elif self._state == REDUCED and self._una > self._high:
                self._finish()
            if self._state == LOSS:
                again = self._recover_from_timeout(advanced, sacked, original)
            elif duplicate and self._may_undo():
                self._undo()
                if self._state == RECOVERY:
                    self._state = OPEN
            under_way = self._again
            waits = self._detect(now)
            if self._state != LOSS or self._again < under_way:
                if self._lost:
                    if self._state != RECOVERY:
                        self._enter_recovery()
                    again = "lost"
                elif self._state <= DISORDER:
                    self._state = DISORDER if self._sacked else OPEN
                elif self._state == RECOVERY:
                    again = "lost"
            sets_timer = sets_timer and not waits
        if sets_timer and not self._arm_probe(now, restarts=True):
            self._rearm(now)
        if not self._out:
            self._timer = NO_TIMER
        return again

    def _recover_from_timeout(self, advanced: bool, sacked: bool, original: bool) -> str:
        recovered = self._una >= self._high
        if advanced and self._may_undo():
            self._undo(clears=True)
            self._state = OPEN
            return ""
        if self._frto:
            if original:
                self._undo(clears=True)
                self._state = OPEN
                return ""
            if self._next > self._high:
                if sacked or not advanced:
                    self._frto = False
            elif advanced and not recovered:
                self._high = self._next
                if self._next < self._written:
                    return "new"
                self._frto = False
        if recovered:
            if self._may_undo():
                self._undo()
            self._state = OPEN
            return ""
        return "lost"

    def _control(self, now: float, sample: Sample, newly: int, advanced: bool) -> None:
        if self._app_limited and self._delivered > self._app_limited:
            self._app_limited = 0
        if self.control.measures:
            sample.acked = newly
            sample.losses = self._losses
            sample.total = self._delivered
            sample.left = self._in_flight
            sample.recovering = self._state >= RECOVERY
            if sample.prior_delivered >= 0:
                sample.delivered = self._delivered - sample.prior_delivered
                sample.interval_s = max(sample.interval_s, self._ack_span_s)
                if sample.interval_s < self._min_rtt_s:
                    sample.interval_s = -1.0
            self.control.measured(now, sample)
        elif self._state in (REDUCED, RECOVERY):
            self._reduce(newly, self._losses, advanced=advanced)
        elif newly and advanced and self._uses_window():
            self.control.acked(now, newly, self._min_rtt_s)

    def _reduce(self, newly: int, losses: int, *, advanced: bool) -> None:
        """Bring the window down to the threshold in proportion to what arrives (RFC 6937)."""
        if newly <= 0 or not self._prior_window:
            return
        self._prr_delivered += newly
        room = self.control.threshold - self._in_flight
        if room < 0:
            share = self.control.threshold * self._prr_delivered + self._prior_window - 1
            count = share // self._prior_window - self._prr_out
        else:
            count = max(self._prr_delivered - self._prr_out, newly)
            if advanced and not losses:
                count += 1
            count = min(room, count)
        count = max(count, 0 if self._prr_out else 1)
        self.control.window = self._in_flight + count
