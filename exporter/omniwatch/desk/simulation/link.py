"""Simulate the mobile link: cuts, and how client and server repair them."""

from __future__ import annotations

import itertools
import random

from omniwatch.desk.simulation.session import Process, Session
from omniwatch.events import Resume, Rtx

REALIGN_MS = 15.0
"""Stamps are off by up to 25 ms (half a picture and an uneven camera): past this one may show the seeds' DRIFT_MS of 40."""
RTX_THR, CACHE_WIN = 3, 75
"""The seeds' thresholds: so many frames lost in a row are asked for again, so many are kept."""
RECONNECT_S = 1.0
"""A client that hears nothing for so long reconnects; a shorter cut costs it the frames."""
SETTLE_S = 0.03
"""After a cut the pictures that waited come first, then speech."""


def handovers(session: Session) -> Process:
    """Cut the link about evenly: mostly for far less than a second, each fifth time until the client reconnects."""
    luck = session.luck("handovers")
    at = session.listener.joins_s
    for number in itertools.count(1):
        condition = session.scenario.condition(at)
        if not condition.cuts_per_minute:
            return
        at += luck.uniform(0.6, 1.4) * 60 / condition.cuts_per_minute
        yield at
        if session.up_s is not None or session.held:
            continue
        length_s = luck.lognormvariate(-1.7, 0.5) if number % 5 else luck.uniform(1.0, 2.5)
        jump_ms = luck.uniform(-condition.cut_jump_ms, condition.cut_jump_ms)
        # The curve this is about is drift: a long cut before the first word would be a late answer.
        length_s = min(length_s, 0.1 if session.user_waits else 2.5)
        yield from cut(session, at, length_s, jump_ms, luck)
        if abs(session.drift_ms(at)) > REALIGN_MS:
            yield at + 4.0
            yield from session.realign(at + 4.0)


def cut(session: Session, at_s: float, length_s: float, jump_ms: float, luck: random.Random) -> Process:
    """Take the link away, displace the voice, then repair what was lost as the length of the cut demands."""
    while session.up_s is not None:
        at_s = session.up_s
        yield at_s
    now = at_s + length_s
    session.up_s, session.speech_waits = now, True
    yield now
    session.up_s = None
    session.jump(jump_ms)
    yield now + SETTLE_S
    session.speech_waits = False
    if length_s >= RECONNECT_S:
        yield from _resume(session, now, length_s, abs(jump_ms), luck)
    else:
        yield from _retransmit(session, now + SETTLE_S, luck)


def _resume(session: Session, up_s: float, outage_s: float, extra_ms: float, luck: random.Random) -> Process:
    """The client came back by itself: what the cache still has is sent again in one go, live speech after it."""
    held = session.held
    now = up_s + luck.uniform(0.05, 0.08)
    yield now
    last_good_id = (held[0].frame_id if held else session.next_id) - 1
    evicted = max(len(held) - CACHE_WIN, 0)
    for _ in range(evicted):
        held.popleft()
    yield Resume(
        t=now,
        stream=session.stream,
        last_good_id=last_good_id % 2**32,
        first_id=(last_good_id + 1 + evicted) % 2**32,
        result="replay" if evicted else "hit",
        replayed=len(held),
        latency_ms=round((now - up_s) * 1000, 1),
        extra_ms=round(extra_ms, 1),
        outage_ms=round(outage_s * 1000, 1),
    )
    while held:
        now += 0.002
        yield now
        yield session.hand_over(held.popleft(), now)


def _retransmit(session: Session, up_s: float, luck: random.Random) -> Process:
    """Frames of a short cut are lost; a run of them is asked for again and comes late."""
    lost = list(session.held)
    session.held.clear()
    if len(lost) < RTX_THR:
        return
    now = up_s + luck.uniform(0.1, 0.13)
    yield now
    found = luck.random() < 0.9
    yield Rtx(
        t=now,
        stream=session.stream,
        from_id=lost[0].frame_id,
        count=len(lost),
        result="hit" if found else "miss",
    )
    for frame in lost if found else ():
        now += 0.002
        yield now
        yield session.hand_over(frame, now)
