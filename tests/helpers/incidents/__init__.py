"""Make incidents by physics: what a faulty device, network or client does to a listener, and the events it leaves behind.

Nothing here knows how a verdict is reached. Truth is the same seed played again without the fault.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from helpers.incidents.engine import FRAME_S, Job, Machine, serve
from helpers.incidents.sensors import SENSORS, sampled
from helpers.incidents.wire import Connection, Path, Reader, reached
from omniwatch import events as ev

T0 = 1_700_000_000.0
PLAYER_S = 0.08
"""Speech that the client's player holds back."""
POLL_S = 0.1
CHUNKINGS = ((1, 1), (2, 4), (4, 8), (4, 25), (12, 25), (25, 25), (10, 50))
HISTORY = 26
"""Good turns before anything happens."""

Spell = tuple[float, float, float]


class Told(NamedTuple):
    """What may be said of a fault: any of `causes`, by symptom; `any` for the others."""

    late: frozenset[str]
    starved: frozenset[str]


def _told(late: str, starved: str) -> Told:
    return Told(frozenset(late.split()), frozenset(starved.split()))


UNSAMPLED = _told("thinking voice unknown", "pace stall chunks unknown")
"""What may be said of a fault that only a sample of the device would show, where there are events alone."""
FAULTS = {
    "quota": _told("quota", "quota"),
    "heat": _told("heat", "heat"),
    "memory": _told("memory", "memory"),
    "load": _told("load", "load"),
    "pace": _told("voice", "pace"),
    "thinking": _told("thinking", "thinking"),
    "voice": _told("voice", "voice"),
    "warmup": _told("warmup", "warmup"),
    "chunks": _told("voice", "chunks"),
    "stall engine": _told("thinking voice stall", "stall"),
    "stall process": _told("thinking voice stall", "stall"),
    "outage": _told("network", "network"),
    "loss": _told("network", "network"),
    "slow": _told("network", "network"),
    "longer": _told("network", "network"),
    "question": _told("network", "network"),
    "reader": _told("listener", "listener"),
    "reader reports": _told("listener", "listener"),
    "cut": _told("cut", "cut"),
}
UNSEEN = ("reader unseen", "question unseen")
"""Faults that no evidence of a server shows."""
OF_THE_PATH = ("outage", "loss", "slow", "longer", "reader", "reader reports", "cut", *UNSEEN)


@dataclass
class Asked:
    """A question of one stream."""

    stream: str
    t: float
    think: float
    voice: float
    frames: int
    extra: tuple[float, float] = (0.0, 0.0)
    """More work for thinking and voice, by a fault."""
    lost_s: float = 0.0
    """By how much the question came late to the server."""


@dataclass
class Plan:
    """An incident before it is played."""

    seed: int
    speedup: float
    chunking: tuple[int, int]
    """Frames of the first chunk, and of each other."""
    bytes_per_s: float
    path: Path
    asked: list[Asked]
    ear: str
    text: bool
    reports: bool
    video: bool
    kind: str
    turns_t: float
    """When the good turns are over."""
    machine: Machine = field(default_factory=Machine)
    slower: Spell | None = None
    reader: Reader = field(default_factory=Reader)
    frozen: tuple[float, float] | None = None
    """When the process with the tap stood still."""
    cut: tuple[float, float] | None = None
    """When the connection was lost, and when the client came back."""
    restart_t: float = inf
    other_chunking: tuple[int, int] | None = None
    """The chunking after the good turns."""
    sensors: tuple[str, ...] = SENSORS
    """What this device can say of itself."""


@dataclass
class Heard:
    """What the listener had of a turn, by the physics."""

    delay_s: float = inf
    starved_s: float = 0.0


@dataclass
class Incident:
    """What a server wrote of it, and what each turn of the listener's was like."""

    seed: int
    faults: tuple[str, ...]
    lines: list[bytes]
    heard: dict[int, Heard]
    text: bool = True
    sensors: tuple[str, ...] = SENSORS
    samples: list[bytes] = field(default_factory=list)
    """Lines of the device's samples."""
    late_to_see: frozenset[int] = frozenset()
    """Turns whose question waited for a process that stood still: only the client sees that."""


def incident(seed: int, *faults: str) -> tuple[Incident, Incident]:
    """Return an incident with these faults, and the same without them."""
    return _play(_plan(seed, faults), faults), _play(_plan(seed, faults, faulty=False), ())


def _plan(seed: int, faults: tuple[str, ...], faulty: bool = True) -> Plan:
    luck = random.Random(f"{seed} base")
    fault_luck = random.Random(f"{seed} fault")
    wants_slow = "heat" in faults
    others = luck.choice((0, 0, 0, 1, 1, 2))
    while True:
        speedup = luck.uniform(1.6, 2.6) if wants_slow else 1.6 * 4 ** luck.random()
        first, then = luck.choice(CHUNKINGS)
        share = speedup / (1 + others)
        if share > 1.3 and then / share < first + 0.6 and first * FRAME_S / speedup < 0.3:
            break
        others = max(0, others - 1)
    think, voice = luck.uniform(0.08, 0.3), luck.uniform(0.03, 0.2)
    asked: list[Asked] = []
    t = 5.0

    def question(stream: str, at: float, frames: int) -> Asked:
        return Asked(stream, at, think * luck.uniform(0.8, 1.25), voice * luck.uniform(0.8, 1.25), frames)

    for _ in range(HISTORY):
        asked.append(question("a", t, luck.randint(10, 60)))
        t += luck.uniform(6.0, 7.0)
    turns = []
    for _ in range(luck.choice((2, 3))):
        frames = int(luck.uniform(3, 14) / FRAME_S)
        turns.append(question("a", t, frames))
        t += frames * FRAME_S + luck.uniform(8, 14)
    asked += turns
    for number in range(others):
        at = turns[0].t + luck.uniform(-2, 6)
        while at < t:
            frames = int(luck.uniform(3, 10) / FRAME_S)
            asked.append(question(f"b{number}", at, frames))
            at += frames * FRAME_S + luck.uniform(4, 12)
    rtt_s = luck.uniform(0.015, 0.15)
    bytes_per_s = luck.choice((64_000.0, 64_000.0, 48_000.0, 8_000.0))
    path = Path(
        rtt_s,
        jitter_s=luck.uniform(0, 0.02),
        loss=luck.choice((0.0, 0.0, 0.001, 0.004)),
        rate=bytes_per_s * luck.uniform(4, 20),
        luck=random.Random(f"{seed} path"),
    )
    plan = Plan(
        seed,
        speedup,
        (first, then),
        bytes_per_s,
        path,
        asked,
        ear="kernel" if luck.random() < 0.85 or any(fault in OF_THE_PATH for fault in faults) else "sent",
        text=luck.random() < 0.8,
        reports=luck.random() < 0.35,
        video=luck.random() < 0.3,
        kind=luck.choice(("chat", "video", "realtime")),
        turns_t=turns[0].t,
        sensors=tuple(name for name in SENSORS if random.Random(f"{seed} {name}").random() < 0.85),
    )
    target = fault_luck.choice(turns)
    for fault in faults:
        # What a client says, and whom it asks, is no part of the fault.
        if fault in ("reader reports", "question"):
            plan.reports = True
        elif fault in UNSEEN:
            plan.reports = False
        if fault == "reader":
            plan.bytes_per_s = 64_000.0
        if faulty:
            _break(plan, fault, target, fault_luck)
        else:
            _break(replace(plan, path=replace(path)), "nothing", target, fault_luck)
    return plan


def _break(plan: Plan, fault: str, target: Asked, luck: random.Random) -> None:
    """Bring a fault into a plan, at a random moment of its target's turn, for a random time, of a random size."""
    speech_s = target.frames * FRAME_S
    begin = target.t + (
        luck.uniform(-2, 0.3) if luck.random() < 0.5 else luck.uniform(0.3, 0.8) * speech_s / plan.speedup
    )
    spell_s = luck.uniform(2, 15)
    end = begin + spell_s
    path, machine = plan.path, plan.machine
    if fault == "quota":
        machine.quota = (begin, end, luck.uniform(0.15, 1.0) / plan.speedup)
    elif fault == "heat":
        machine.heat = (begin, end + 10, luck.uniform(0.3, 0.6))
    elif fault == "memory":
        at = begin
        while at < end:
            stop_s = luck.uniform(0.05, 0.9)
            machine.stops.append((at, at + stop_s))
            machine.waits.append((at, at + stop_s))
            at += stop_s + luck.uniform(0.02, 0.5)
    elif fault == "load":
        for number in range(luck.randint(2, 6)):
            frames = int(luck.uniform(4, 15) / FRAME_S)
            at = begin + luck.uniform(-0.5, 2)
            plan.asked.append(
                Asked(f"c{number}", at, target.think * luck.uniform(1, 4), target.voice, frames)
            )
    elif fault == "pace":
        plan.slower = (begin, end + 20, plan.speedup * luck.uniform(1.02, 2.0))
    elif fault == "thinking":
        target.extra = (target.extra[0] + luck.uniform(0.4, 3.0), target.extra[1])
    elif fault == "voice":
        target.extra = (target.extra[0], target.extra[1] + luck.uniform(0.4, 3.0))
    elif fault == "warmup":
        plan.restart_t = target.t - luck.uniform(0.5, 2)
        target.extra = (luck.uniform(0.2, 2), luck.uniform(0.2, 2))
    elif fault == "chunks":
        first, then = plan.chunking
        plan.other_chunking = luck.choice(
            ((4, 25), (4, 25), (1, 25), (4, 50), (first, 2 * then), (first, 50))
        )
    elif fault == "stall engine":
        machine.stops.append((begin, begin + luck.uniform(0.6, 4)))
    elif fault == "stall process":
        plan.frozen = (begin, begin + luck.uniform(0.6, 4))
    elif fault == "outage":
        path.downs.append((begin, begin + luck.uniform(0.3, 4)))
    elif fault == "loss":
        path.lossy = (begin, end, luck.uniform(0.04, 0.3))
    elif fault == "slow":
        path.slow = (begin, end + 5, plan.bytes_per_s * luck.uniform(0.3, 0.95))
    elif fault == "longer":
        path.longer = (begin, end + 20, luck.uniform(0.2, 1.5))
    elif fault in ("question", "question unseen"):
        target.lost_s = luck.choice((1.0, 3.0)) * luck.uniform(0.9, 1.1)
    elif fault == "reader":
        rate = plan.bytes_per_s * luck.uniform(0.3, 0.9)
        plan.reader = Reader(luck.choice((16, 32)) * 1024, (begin, end + 10, rate))
    elif fault in ("reader reports", "reader unseen"):
        plan.reader = Reader(slow=(begin, end + 10, plan.bytes_per_s * luck.uniform(0.3, 0.9)))
    elif fault == "cut":
        at = begin + luck.uniform(0, 1)
        plan.cut = (at, at + luck.uniform(0.3, 5))


def _play(plan: Plan, faults: tuple[str, ...]) -> Incident:
    jobs = {}
    frame = FRAME_S / plan.speedup
    for number, asked in enumerate(plan.asked):
        job = Job(
            asked.t + asked.lost_s,
            asked.think + asked.extra[0],
            asked.voice + asked.extra[1],
            frame,
            asked.frames,
            plan.slower,
        )
        jobs[number] = job
    serve(plan.machine, list(jobs.values()))
    told: list[ev.Event] = []
    heard: dict[int, Heard] = {}
    unread: set[int] = set()
    spans: list[tuple[float, float]] = []
    streams = sorted({asked.stream for asked in plan.asked})
    for stream in streams:
        told.append(ev.StreamStart(t=T0, stream=stream, kind=plan.kind, peer="192.0.2.7:4000"))
    turn_of: dict[str, int] = {}
    mine = [number for number, asked in enumerate(plan.asked) if asked.stream == "a"]
    connection = Connection(plan.path, plan.reader, 0.0)
    busy_t = 0.0
    for number, asked in enumerate(plan.asked):
        turn = turn_of[asked.stream] = turn_of.get(asked.stream, 0) + 1
        listener = _Turn(plan, asked, jobs[number], turn)
        if asked.stream == "a" and asked.t < busy_t:
            # Whoever still listens asks nothing.
            continue
        if asked.stream == "a":
            connection, found = listener.carry(connection, last=number == mine[-1])
            if asked.t >= plan.turns_t:
                heard[turn] = found
            busy_t = max(busy_t, listener.played_t)
            if plan.frozen and plan.frozen[0] <= asked.t < plan.frozen[1]:
                unread.add(turn)
        else:
            listener.hand_over(None)
        told += listener.told
        spans.append((asked.t + asked.lost_s, listener.ended_t))
    if plan.video:
        luck, until = random.Random(f"{plan.seed} video"), max(end for _, end in spans)
        for number in range(int(until * 2)):
            t = T0 + number / 2 + 0.02 + luck.random() * 0.01
            told.append(ev.Video(t=t, stream="a", pts_ms=number * 500.0))
    return Incident(
        plan.seed,
        faults,
        _lines(plan, told),
        heard,
        plan.text,
        plan.sensors,
        sampled(plan.machine, plan.sensors, plan.seed, T0),
        frozenset(unread),
    )


def _lines(plan: Plan, told: list[ev.Event]) -> list[bytes]:
    lines = []
    counts = {"w1": 100_000, "w2": 0}
    for event in sorted(told, key=lambda event: event.t):
        event.w = "w2" if event.t - T0 > plan.restart_t else "w1"
        event.n = counts[event.w]
        event.m = event.t - T0 + 1000
        counts[event.w] += 1
        lines.append(ev.encode(event))
    return lines


class _Turn:
    """One answer, from the engine to the listener's player."""

    def __init__(self, plan: Plan, asked: Asked, job: Job, turn: int) -> None:
        self.plan, self.asked, self.job, self.turn = plan, asked, job, turn
        self.told: list[ev.Event] = []
        self.ended_t = 0.0
        self.handed: list[tuple[float, float]] = []
        """When each chunk was handed over, and its length in seconds."""
        self.sizes: list[float] = []
        """Where each chunk ends among the connection's bytes."""

    def _at(self, t: float) -> float:
        """The server's process does what was due at t when it runs."""
        frozen = self.plan.frozen
        return frozen[1] if frozen and frozen[0] <= t < frozen[1] else t

    def hand_over(self, connection: Connection | None) -> None:
        """Assemble frames to chunks, and hand them over as the transport takes them."""
        plan, job, name = self.plan, self.job, self.asked.stream
        kernel = connection is not None and plan.ear == "kernel"
        asked_t = self._at(self.asked.t + self.asked.lost_s)
        self.told.append(
            ev.TurnStart(t=T0 + asked_t, stream=name, turn=self.turn, ear="kernel" if kernel else None)
        )
        if plan.text:
            self.told.append(ev.Text(t=T0 + self._at(job.text_t), stream=name, turn=self.turn))
        first, then = (plan.turns_t <= self.asked.t and plan.other_chunking) or plan.chunking
        done, free_t = 0, 0.0
        while done < len(job.frame_ts):
            upto = min(len(job.frame_ts), done + (then if done else first))
            seconds = (upto - done) * FRAME_S
            t = max(self._at(job.frame_ts[upto - 1]), free_t)
            self.handed.append((t, seconds))
            self.told.append(ev.Audio(t=T0 + t, stream=name, turn=self.turn, dur_ms=seconds * 1000))
            free_t = t
            if connection is not None:
                connection.push(t, int(seconds * plan.bytes_per_s))
                self.sizes.append(connection.queued)
                free_t = connection.room_t(t)
            done = upto
        self.ended_t = self._at(max(free_t, job.frame_ts[-1]))
        self.told.append(
            ev.TurnEnd(
                t=T0 + self.ended_t + 0.001,
                stream=name,
                turn=self.turn,
                reason="completed",
                chars=int(self.asked.frames),
            )
        )

    def carry(self, connection: Connection, *, last: bool) -> tuple[Connection, Heard]:
        """Bring it to the listener; return the connection it ends on, and what the listener had."""
        plan = self.plan
        self.hand_over(connection)
        connection.drain(self.ended_t + 120)
        acked = [reached(connection.acks, size) for size in self.sizes]
        taken = [reached(connection.taken, size) for size in self.sizes]
        resent, closed = connection.resent, connection.closed
        if plan.cut and self.asked.t < plan.cut[0] < max(acked):
            connection, acked, taken, resent = self._return(acked, taken, resent)
        heard = self._hear(taken)
        if plan.ear == "kernel":
            self._ask_kernel(acked, resent, closed)
        if plan.reports:
            self._report(heard, taken)
        return connection, heard

    def _return(
        self, acked: list[float], taken: list[float], resent: list[tuple[float, int]]
    ) -> tuple[Connection, list[float], list[float], list[tuple[float, int]]]:
        """Lose the connection, and take the turn up again on another."""
        plan = self.plan
        assert plan.cut is not None
        lost_t, back_t = plan.cut
        fresh = Connection(plan.path, plan.reader, back_t)
        kept = [t for t in acked if t <= lost_t]
        for n, (t, seconds) in enumerate(self.handed):
            if n >= len(kept):
                fresh.push(max(t, back_t), int(seconds * plan.bytes_per_s))
                self.sizes[n] = fresh.queued
        fresh.drain(self.ended_t + 120)
        self.told.append(
            ev.Resume(
                t=T0 + back_t,
                stream="a",
                last_good_id=len(kept),
                result="hit",
                outage_ms=(back_t - lost_t) * 1000,
            )
        )
        later = range(len(kept), len(acked))
        acked = kept + [reached(fresh.acks, self.sizes[n]) for n in later]
        taken = taken[: len(kept)] + [reached(fresh.taken, self.sizes[n]) for n in later]
        return fresh, acked, taken, [r for r in resent if r[0] < lost_t] + fresh.resent

    def _hear(self, taken: list[float]) -> Heard:
        heard = Heard(taken[0] - self.asked.t + self.plan.path.rtt_s / 2)
        self.gaps: list[tuple[float, float]] = []
        end = taken[0] + PLAYER_S
        for t, (_, seconds) in zip(taken, self.handed, strict=True):
            if t > end:
                self.gaps.append((end, t))
                heard.starved_s += t - end
                end = t
            end += seconds
        self.played_t = end
        return heard

    def _ask_kernel(
        self, acked: list[float], resent: list[tuple[float, int]], closed: list[tuple[float, float]]
    ) -> None:
        """Ask ten times a second while something is under way, and tell what has arrived."""
        plan, luck = self.plan, random.Random(f"{self.plan.seed} {self.turn}")
        rtt_s = plan.path.rtt_s
        told = 0
        told_t = now = asked_t = self.handed[0][0]
        lengths = [seconds for _, seconds in self.handed]
        while told < len(acked):
            if now + POLL_S < self.handed[told][0]:
                now = self.handed[told][0]
            due = now + luck.uniform(0.7, 1.3) * POLL_S
            now = self._at(due)
            there = sum(t <= now for t in acked)
            under_way = sum(t <= now for t, _ in self.handed) > there
            if there == told and not (under_way and now - told_t >= 1):
                if now - due > 0.01:
                    self._paused = max(getattr(self, "_paused", 0.0), now - due)
                continue
            for upto in sorted({told + 1, there}) if not told and there else [there]:
                at = acked[upto - 1] if upto else now
                resends = sum(n for t, n in resent if asked_t < t <= now)
                windows = sum(max(0.0, min(b, now) - max(a, asked_t)) for a, b in closed)
                waiting = sum(lengths[n] for n in range(upto, len(acked)) if self.handed[n][0] <= now)
                paused = max(now - due, getattr(self, "_paused", 0.0))
                self.told.append(
                    ev.Arrived(
                        t=T0 + now,
                        stream="a",
                        turn=self.turn,
                        ms=sum(lengths[:upto]) * 1000,
                        ago_ms=max(
                            0.0, now - (at - rtt_s / 2) - luck.random() * (0.02 if upto == there else 0.06)
                        )
                        * 1000,
                        rtt_ms=rtt_s * 1000 * luck.uniform(1, 1.3),
                        least_rtt_ms=rtt_s * 1000,
                        waiting=int(waiting * plan.bytes_per_s),
                        retrans=resends,
                        window_ms=windows * 1000,
                        paused_ms=paused * 1000 if paused > 0.02 else 1.0,
                    )
                )
                self._paused = 0.0
                asked_t = now
            told, told_t = there, now

    def _report(self, heard: Heard, taken: list[float]) -> None:
        """Let the client's player say what it had, as it goes along."""
        way_s = self.plan.path.rtt_s / 2
        first_t = T0 + taken[0] + way_s + 0.01
        self.told.append(ev.Rtt(t=first_t, stream="a", turn=self.turn, rtt_ms=heard.delay_s * 1000))
        t, said = taken[0], 0.0
        while t < self.played_t:
            t = min(t + 2.0, self.played_t)
            starved = sum(min(b, t) - a for a, b in self.gaps if a < t)
            self.told.append(
                ev.Underrun(
                    t=T0 + t + way_s + 0.02,
                    stream="a",
                    turn=self.turn,
                    ms=(starved - said) * 1000,
                    source="player",
                )
            )
            said = starved
