"""Judge a turn by its record: what was bad, by how much, and why. Pure; a cause that nothing in the record shows is `unknown`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import inf
from typing import NamedTuple

import msgspec

from omniwatch.core.record import FRAME_MS, NEVER, TOGETHER_MS, TOGETHER_S, Piece, Record
from omniwatch.core.samples import SENSORS
from omniwatch.core.usual import Spans, Usual, pace_of, spans_of

_EITHER = ("network", "listener", "cut", "load", "stall", "quota", "heat", "memory")
CAUSES: dict[str, tuple[str, ...]] = {
    "late": ("thinking", "voice", "warmup", *_EITHER, "unknown"),
    "starved": ("chunks", "pace", *_EITHER, "unknown"),
    "skewed": ("cut", "camera", "timestamps", "unknown"),
    "silent": ("server", "unknown"),
    "failed": ("server", "unknown"),
    "overrun": ("ahead", "unknown"),
}
"""The causes that each symptom can have."""
STARVED_MS = 150.0
"""A turn starved from here on: on a lossy path, the ear is 100 ms fine."""
REPORTED_MS = 100.0
"""What a client reports beyond what arrival explains, from here on, is its own."""
SILENT = 0.9
"""Share of a turn's speech that is digital silence, from which on the turn is silent."""
STALL_S = 0.5
"""Least pause, beyond what the speech around it explains, that is a stall."""
WARM_TURNS = 3
"""So many first turns of a new writer may be slow for being first."""
BLOCKED_S = 0.25
"""The network can hold a piece back only if the piece before was under way until this long before its hand-over, or later."""
FULL_S = 0.5
"""Full buffers explain a pause only if the piece before took at least so much longer than usual to arrive."""
LONGER = 1.25
"""A chunk is long from so many times its usual length on."""
SLOW_PATH = 0.3
"""A path that takes more of a piece's length to carry it is slow."""
RETURN_S = 2.0
"""Seconds after a client's return in which speech that goes on, or a drift that jumps, is the return's."""
AT_ONCE_S = 0.05
"""Pieces handed over within this time came at once."""
SHARE = 1.0
"""Another turn that is answered meanwhile explains a delay of at most so many times the turn's own usual time."""
SEEN, MOSTLY = 0.8, 0.5
"""A cause with at least the first share of the excess is "seen", with at least the second "mostly"; below it is unknown."""
HALF = 0.5
"""Least share of an excess that evidence covers."""


class Terms(NamedTuple):
    """What is bad, by the settings, and what is usual."""

    late_ms: float = 800.0
    skewed_ms: float = 60.0
    buffer_s: float = 0.08
    client_buffer_ms: float | None = None
    usual: Usual = Usual()


class Verdict(msgspec.Struct, omit_defaults=True):
    """One symptom of one turn. `certainty` is "seen", "mostly" or "unknown"; `parts` and `excess_ms` are in ms."""

    symptom: str
    cause: str
    certainty: str
    excess_ms: float
    parts: dict[str, float] = {}
    numbers: dict[str, float | str] = {}


def judge(record: Record, terms: Terms) -> list[Verdict]:
    """Return a verdict for each symptom of the turn, none for a good one."""
    if not is_judged(record):
        return []
    found = [_failed(record), _silent(record, terms)]
    if not any(found):
        found += [
            _late(record, terms),
            _starved(record, terms),
            _skewed(record, terms),
            _overrun(record, terms),
        ]
    return [verdict for verdict in found if verdict]


def is_judged(record: Record) -> bool:
    """Whether the turn can have symptoms: it was not interrupted, refused or given up, and its listener stayed."""
    return record.outcome in ("completed", "failed", "no_audio", "other") and record.heard


def _chunks_are_usual(record: Record, terms: Terms) -> bool:
    """Whether good turns have chunks as long, and a first one as short. False where that is not known."""
    chunk_s, first_s = record.chunk_ms / 1000, record.first_ms / 1000
    return 0 < chunk_s <= LONGER * terms.usual.chunk and LONGER * first_s >= terms.usual.first


def _failed(record: Record) -> Verdict | None:
    return Verdict("failed", "server", "seen", 0.0) if record.outcome == "failed" else None


def _silent(record: Record, terms: Terms) -> Verdict | None:
    has_text = record.text_t != NEVER or bool(record.chars)
    sent_ms = record.sent_ms
    if not has_text or (sent_ms and record.silent_ms < SILENT * sent_ms):
        return None
    return Verdict("silent", "server", "seen", sent_ms, {}, {"speech_ms": _ms(sent_ms)})


def _overrun(record: Record, terms: Terms) -> Verdict | None:
    if not terms.client_buffer_ms or record.ahead_ms <= terms.client_buffer_ms:
        return None
    excess = record.ahead_ms - terms.client_buffer_ms
    return Verdict(
        "overrun", "ahead", "seen", _ms(excess), {"ahead": _ms(excess)}, {"ahead_ms": _ms(record.ahead_ms)}
    )


def _skewed(record: Record, terms: Terms) -> Verdict | None:
    if abs(record.skew_ms) <= terms.skewed_ms:
        return None
    return _verdict(
        "skewed", {cause: abs(ms) for cause, ms in record.skew_parts.items()}, {}, abs(record.skew_ms)
    )


def _late(record: Record, terms: Terms) -> Verdict | None:
    spans = spans_of(record)
    if spans is None or sum(spans) * 1000 <= terms.late_ms:
        return None
    usual = Spans(*terms.usual[:3])
    if not spans.voice:
        usual = Spans(usual.thinking + usual.voice, 0.0, usual.network)
    over = {name: max(0.0, getattr(spans, name) - getattr(usual, name)) for name in Spans._fields}
    numbers: dict[str, float | str] = {
        f"{name}_ms": _ms(1000 * value) for name, value in spans._asdict().items()
    }
    network_s = over.pop("network")
    parts: dict[str, float] = {}
    _give(parts, _outside_late(record, network_s, terms), network_s)
    served_s = sum(over.values())
    usual_s = usual.thinking + usual.voice
    inside = _inside(record, served_s, [_Lost(record.asked_t, record.sent_t, served_s, usual_s)], numbers)
    if not inside and _paused_s(record, record.asked_t, record.sent_t) >= HALF * served_s > 0:
        inside = "stall"
        numbers["stopped"] = "process"
    if inside:
        _give(parts, inside, served_s)
    else:
        parts |= over
    return _verdict("late", {cause: 1000 * s for cause, s in parts.items()}, numbers)


def _outside_late(record: Record, excess_s: float, terms: Terms) -> str:
    until_t = record.arrived[0].last_t if record.arrived else record.sent_t
    if any(record.asked_t <= t <= until_t + 0.001 for t in record.cuts):
        return "cut"
    by_client = record.client_rtt_ms is not None and record.client_rtt_ms > (record.rtt_ms or 0.0)
    # The client measured longer than the server: then the closed window before the second message counts as well.
    closed_ms = sum(piece.window_ms for piece in record.arrived[: 2 if by_client else 1])
    if record.arrived and closed_ms >= HALF * 1000 * excess_s:
        return "listener"
    if by_client and record.ear == "kernel" and _unexplained_s(record, terms) * 1000 >= REPORTED_MS:
        return "listener"
    return "network" if by_client or record.ear == "kernel" else "unknown"


def underrun_s(pieces: list[Piece], first_t: float, buffer_s: float) -> float:
    """Return for how long a player that holds back `buffer_s` has nothing to play."""
    end_t, starved_s = first_t + buffer_s, 0.0
    for piece in pieces:
        if piece.t > end_t:
            starved_s += piece.t - end_t
            end_t = piece.t
        end_t += piece.ms / 1000
    return starved_s


def _unexplained_s(record: Record, terms: Terms) -> float:
    """Return what the client's player starved by its own word, beyond what arrival explains."""
    if record.underrun_ms is None or not record.arrived:
        return 0.0
    return record.underrun_ms / 1000 - underrun_s(record.arrived, record.arrived[0].t, terms.buffer_s)


class _Lost(NamedTuple):
    """A time in which `s` seconds of an excess arose; without it, it would have taken `usual_s`."""

    begin_t: float
    end_t: float
    s: float
    usual_s: float


class _Pause(NamedTuple):
    """The time between the last of a piece and the last of the next, in s, and what the next would usually have taken."""

    begin_t: float
    end_t: float
    usual_s: float
    stall_s: float
    is_blocked: bool

    @property
    def more_s(self) -> float:
        """How much longer it was."""
        return max(0.0, self.end_t - self.begin_t - self.usual_s)


def _starved(record: Record, terms: Terms) -> Verdict | None:
    sent, buffer_s = record.sent, terms.buffer_s
    # A server that states its positions may hand speech over as it likes: only a listener's side tells that he starved.
    if not sent or (record.is_stated and record.ear == "sent" and record.underrun_ms is None):
        return None
    handed_s = underrun_s(sent, record.sent_t, buffer_s)
    arrived_s = handed_s
    by_kernel = record.ear == "kernel" and bool(record.arrived)
    if by_kernel:
        arrived_s = underrun_s(record.arrived, record.arrived[0].t, buffer_s)
    starved_s = arrived_s if record.underrun_ms is None else record.underrun_ms / 1000
    if starved_s * 1000 < STARVED_MS:
        return None
    numbers: dict[str, float | str] = {"arrived_ms": _ms(1000 * arrived_s), "handed_ms": _ms(1000 * handed_s)}
    parts: dict[str, float] = {}
    reported_s = starved_s - arrived_s
    if reported_s * 1000 >= REPORTED_MS:
        numbers["reported_ms"] = _ms(record.underrun_ms or 0.0)
        _give(parts, "listener" if record.ear == "kernel" else "unknown", reported_s)
    left_s = min(arrived_s, starved_s)
    pauses = _pauses(record, terms)
    served = _moved(sent, pauses, [pause.more_s if pause.is_blocked else 0.0 for pause in pauses])
    carried = (
        _carried(served, record, terms) if by_kernel and not _chunks_are_usual(record, terms) else served
    )
    served_s = min(left_s, underrun_s(served, record.sent_t, buffer_s))
    carried_s = min(left_s, max(served_s, underrun_s(carried, carried[0].t, buffer_s)))
    _give(parts, _outside_starved(record, left_s - carried_s, terms), left_s - carried_s)
    inside: dict[str, float] = {"chunks": 0.0}
    cut_s = 0.0 if by_kernel else served_s - _uncut_s(record, served, pauses, served_s, terms)
    if cut_s >= HALF * served_s > 0:
        inside = {"cut": cut_s, "unknown": served_s - cut_s}
    elif served_s > 0:
        pauses = [pause for pause in pauses if not pause.is_blocked]
        inside |= _inside_starved(record, served, served_s, pauses, terms, numbers)
    # A burst takes time even on a good path: that time goes to the largest cause in `inside`, which made the burst.
    inside[max(inside, key=lambda cause: inside[cause])] += carried_s - served_s
    for cause, share_s in inside.items():
        _give(parts, cause, share_s)
    return _verdict("starved", {cause: 1000 * s for cause, s in parts.items()}, numbers, starved_s * 1000)


def _outside_starved(record: Record, excess_s: float, terms: Terms) -> str:
    if record.ear != "kernel" or excess_s <= 0:
        return "unknown"
    begin_t, end_t = record.sent_t, record.arrived[-1].last_t if record.arrived else record.sent_t
    if any(begin_t <= t <= end_t for t in record.cuts):
        return "cut"
    closed_s = lost_s = 0.0
    player_t, before_t = record.arrived[0].t + terms.buffer_s, record.arrived[0].last_t
    for piece in record.arrived:
        late_s = max(0.0, piece.t - player_t, piece.last_t - before_t - piece.ms / 1000)
        lost_s += late_s
        closed_s += min(piece.window_ms / 1000, late_s)
        player_t, before_t = max(player_t, piece.t) + piece.ms / 1000, piece.last_t
    return "listener" if closed_s >= HALF * lost_s else "network"


def _uncut_s(
    record: Record, served: list[Piece], pauses: list[_Pause], served_s: float, terms: Terms
) -> float:
    """Return what the listener starves without the pauses that ended with the client's return on another connection."""
    less_s = [
        b.first_t - a.last_t if any(a.last_t < t <= b.first_t <= t + RETURN_S for t in record.cuts) else 0.0
        for a, b in pairwise(record.sent)
    ]
    return min(served_s, underrun_s(_moved(served, pauses, less_s), record.sent_t, terms.buffer_s))


def _inside_starved(
    record: Record,
    served: list[Piece],
    served_s: float,
    pauses: list[_Pause],
    terms: Terms,
    numbers: dict[str, float | str],
) -> Mapping[str, float]:
    """Split what the listener starved by what was handed over: stalls, chunks and pace, or what the device shows."""
    every = _pauses(record, terms)
    flowing = _moved(served, every, [p.stall_s if not p.is_blocked else 0.0 for p in every])
    flowing_s = min(served_s, underrun_s(flowing, record.sent_t, terms.buffer_s))
    stall_s = served_s - flowing_s
    if terms.usual.pace:
        usual = _moved(served, every, [p.more_s if not p.is_blocked else 0.0 for p in every])
        chunks_s = min(flowing_s, underrun_s(usual, record.sent_t, terms.buffer_s))
        pace_s = flowing_s - chunks_s
    else:
        pace_s = min(flowing_s, underrun_s(_spread(flowing), record.sent_t, terms.buffer_s))
        # Good turns have such chunks: then it is not these.
        pace_s = flowing_s if _chunks_are_usual(record, terms) else pace_s
        chunks_s = flowing_s - pace_s
    numbers |= {
        "stalls_ms": _ms(1000 * stall_s),
        "chunks_ms": _ms(1000 * chunks_s),
        "pace_ms": _ms(1000 * pace_s),
    }
    lost = [_Lost(p.begin_t, p.end_t, p.more_s, p.usual_s) for p in pauses if p.more_s]
    inside = _inside(record, stall_s + pace_s, lost, numbers)
    if inside:
        return {inside: stall_s + pace_s, "chunks": chunks_s}
    if stall_s:
        late_s = sum(_paused_s(record, p.begin_t, p.end_t) for p in pauses if p.stall_s)
        numbers["stopped"] = "process" if late_s >= HALF * stall_s else "engine"
    return {"stall": stall_s, "chunks": chunks_s, "pace": pace_s}


def _pauses(record: Record, terms: Terms) -> list[_Pause]:
    sent = record.sent
    own = pace_of(sent) / 1000
    usual = terms.usual.pace / 1000 or min(own, 0.001)
    more = [b.last_t - a.last_t - max(own, usual) * max(_burst_ms(a, own), b.ms) for a, b in pairwise(sent)]
    slow = [b.last_t - a.last_t > 2 * usual * b.ms + 0.2 for a, b in pairwise(sent)]
    arrived_t = _arrival_times(record)
    ways = _ways(record, arrived_t) if arrived_t else []
    before = spans_of(record)
    slow_before = before is not None and sum(before[:2]) > 1.5 * sum(terms.usual[:2]) + 0.2
    found = []
    for n, (a, b) in enumerate(pairwise(sent)):
        alone = not any(slow[max(0, n - 1) : n] + slow[n + 1 : n + 2]) and (n > 0 or not slow_before)
        stall_s = b.last_t - a.last_t - usual * b.ms if more[n] >= STALL_S and alone else 0.0
        blocked = False
        if arrived_t is not None and arrived_t[n] >= b.last_t - BLOCKED_S:
            more_s = b.last_t - a.last_t - usual * b.ms
            usual_way_s = min(_least_way_s(ways, a.ms), terms.usual.network * max(1.0, a.ms / sent[0].ms))
            blocked = ways[n][1] - usual_way_s >= max(FULL_S, HALF * more_s)
        found.append(_Pause(a.last_t, b.last_t, usual * b.ms, max(0.0, stall_s), blocked))
    return found


def _burst_ms(piece: Piece, own: float) -> float:
    """Return the ms of a piece that came at once: of a long piece, what exceeds the turn's own pace."""
    span_s = piece.last_t - piece.first_t
    if piece.first_t == NEVER or span_s < TOGETHER_S or piece.ms <= TOGETHER_MS or not own:
        return piece.ms
    return max(0.0, piece.ms - span_s / own)


def _arrival_times(record: Record) -> list[float] | None:
    """Return when each piece handed over had arrived; None where the kernel does not say."""
    if record.ear != "kernel" or not record.arrived:
        return None
    times, upto, reached, at = [], 0.0, 0.0, 0
    for piece in record.sent:
        upto += piece.ms
        while reached < upto - 1 and at < len(record.arrived):
            reached += record.arrived[at].ms
            at += 1
        if reached < upto - 1:
            times.append(inf)
            continue
        last = record.arrived[at - 1]
        # Of what arrived together it is known how long that took, not when each part came: evenly.
        left = min(1.0, max(0.0, (reached - upto) / last.ms)) if last.first_t != NEVER else 0.0
        times.append(last.last_t - left * (last.last_t - last.first_t))
    return times


def _carried(served: list[Piece], record: Record, terms: Terms) -> list[Piece]:
    """Return the pieces as they would have arrived over a path that takes for each what it took for the quickest of its size.

    What was handed over at once counts as one.
    """
    arrived_t = _arrival_times(record) or []
    sizes = [
        sum(p.ms for p in record.sent if 0 <= piece.last_t - p.last_t < AT_ONCE_S) for piece in record.sent
    ]
    ways = [(ms, t - p.last_t) for ms, p, t in zip(sizes, record.sent, arrived_t, strict=True)]
    slow = terms.usual.network / record.sent[0].ms
    found = []
    for piece, ms, (_, own_s) in zip(served, sizes, ways, strict=True):
        way_s = SLOW_PATH * ms / 1000 + 0.1
        if terms.usual.chunk:
            way_s = min(way_s, max(0.0, own_s))
        else:
            way_s = min(way_s, _least_way_s(ways, ms), max(terms.usual.network, slow * ms))
        found.append(Piece(piece.t + way_s, piece.last_t + way_s, piece.ms))
    return found


def _ways(record: Record, arrived_t: list[float]) -> list[tuple[float, float]]:
    return [(piece.ms, t - piece.last_t) for piece, t in zip(record.sent, arrived_t, strict=True)]


def _least_way_s(ways: list[tuple[float, float]], ms: float) -> float:
    return max(0.0, min(s for size, s in ways if size >= 0.5 * ms))


def _moved(sent: list[Piece], pauses: list[_Pause], less_s: list[float]) -> list[Piece]:
    """Return the pieces as they would have come with each pause so much shorter."""
    moved, back_s = sent[:1], 0.0
    for piece, less in zip(sent[1:], less_s, strict=True):
        back_s += less
        moved.append(Piece(piece.t - back_s, piece.last_t - back_s, piece.ms))
    return moved


def _spread(pieces: list[Piece], frame_ms: float = FRAME_MS) -> list[Piece]:
    """Return the same speech in codec frames, evenly over the time since the piece before.

    Frames that come evenly keep a player waiting most at their first or their last, so these two stand for all.
    """
    even = pieces[:1]
    for a, b in pairwise(pieces):
        frames = max(1.0, b.ms / frame_ms)
        first_t = a.last_t + (b.last_t - a.last_t) / frames
        even.append(Piece(max(first_t, b.last_t - (b.ms - b.ms / frames) / 1000), b.last_t, b.ms))
    return even


def _inside(
    record: Record, excess_s: float, lost: list[_Lost], numbers: dict[str, float | str]
) -> str | None:
    """Return the cause inside the device that covers most of an excess, if any covers half of it."""
    if excess_s <= 0:
        return None
    # Other turns take their share of the machine, and hardly more.
    covers = {
        "load": sum(
            min(s, record.others_s(a, b), SHARE * usual_s * record.others_s(a, b) / (b - a))
            for a, b, s, usual_s in lost
            if b > a
        )
    }
    lost_s, times = sum(each.s for each in lost), [each[:2] for each in lost]
    covers |= {name: min(lost_s, record.lost_s(name, times)) for name in record.sensors}
    numbers |= {f"{name}_ms": _ms(1000 * seconds) for name, seconds in covers.items()}
    if missing := [name for name in SENSORS if name not in record.sensors]:
        numbers["no_sensor"] = " ".join(missing)
    if 0 < record.nth <= WARM_TURNS and lost and lost[0].begin_t == record.asked_t:
        covers["warmup"] = excess_s
        numbers["turn_of_writer"] = float(record.nth)
    best = max(covers, key=lambda cause: covers[cause])
    return best if covers[best] >= HALF * excess_s else None


def _paused_s(record: Record, begin_t: float, end_t: float) -> float:
    """Return by how much the tap's own thread was late between two moments."""
    return sum(max(0.0, min(t, end_t) - max(t - ms / 1000, begin_t)) for t, ms in record.pauses)


def _give(parts: dict[str, float], cause: str, seconds: float) -> None:
    if seconds > 0:
        parts[cause] = parts.get(cause, 0.0) + seconds


def _verdict(
    symptom: str, parts_ms: dict[str, float], numbers: Mapping[str, float | str], excess_ms: float = 0.0
) -> Verdict:
    excess_ms = max(excess_ms, sum(parts_ms.values()))
    known = {cause: ms for cause, ms in parts_ms.items() if cause != "unknown"}
    cause = max(known, key=lambda name: known[name], default="unknown")
    share = known.get(cause, 0.0) / excess_ms if excess_ms else 0.0
    certainty = "seen" if share >= SEEN else "mostly" if share >= MOSTLY else "unknown"
    if certainty == "unknown":
        cause = "unknown"
    parts = {name: _ms(ms) for name, ms in parts_ms.items()}
    return Verdict(symptom, cause, certainty, _ms(excess_ms), parts, dict(numbers))


def _ms(value: float) -> float:
    return round(value, 1)
