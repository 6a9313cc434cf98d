"""The processes of a simulated stream: sending the picture, speaking, the scripted fault."""

from __future__ import annotations

import itertools
from math import inf

from omniwatch.desk.simulation import link
from omniwatch.desk.simulation.session import PICTURE_MS, Process, Session
from omniwatch.events import Interrupt, Rtt, TurnEnd, TurnStart, Video

FRAME_S = 0.08
"""One codec frame: 12.5 a second."""
LATEST_PICTURE_S = 0.09
SHUTTER_MS = 8.0
"""How unevenly a camera takes its pictures, at most."""


def picture(session: Session) -> Process:
    """30 pictures a second over a 4G uplink: it takes about 45 ms, at most 125 ms, and keeps their order."""
    luck, joined_s = session.luck("picture"), session.listener.joins_s
    at = joined_s
    for number in itertools.count():
        jitter_s = min(luck.lognormvariate(-4.6, 0.7), LATEST_PICTURE_S)
        at = max(at + 0.0002, joined_s + number * PICTURE_MS / 1000 + 0.035 + jitter_s)
        yield at
        while session.up_s is not None:
            at = session.up_s + 0.001
            yield at
        shutter_ms = max(-SHUTTER_MS, min(luck.gauss(0, SHUTTER_MS / 3), SHUTTER_MS))
        pts_ms = round(number * PICTURE_MS + shutter_ms, 3)
        session.receive_picture(number, pts_ms)
        yield Video(t=at, stream=session.stream, pts_ms=pts_ms, frame_id=number)


def voice(session: Session) -> Process:
    """Turn after turn: the user's text, the wait, speech frame by frame, the end, a pause."""
    luck, scenario, stream = session.luck("voice"), session.scenario, session.stream
    at = session.listener.joins_s + luck.uniform(0.8, 1.4)
    for turn in itertools.count(1):
        yield at
        while session.up_s is not None:
            at = session.up_s + 0.03
            yield at
        session.user_waits = True
        yield TurnStart(t=at, stream=stream, turn=turn, chars=luck.randint(8, 90))
        answer_s = luck.uniform(*scenario.condition(at).answer_ms) / 1000
        due = at + answer_s
        reason, cut = "stop", scenario.condition(due)
        speaks_up_s = goes_on_until_s = inf
        if cut.speaks_up_s:
            speaks_up_s = due + luck.uniform(*cut.speaks_up_s)
            goes_on_until_s = speaks_up_s + luck.uniform(*cut.goes_on_s)
        for number in range(round(luck.uniform(*scenario.speech_s) / FRAME_S)):
            now = due + luck.expovariate(500)
            yield now
            condition = scenario.condition(now)
            if condition.mute:
                if scenario.mended_at_s is None or scenario.mended_at_s <= now:
                    return
                reason, due = "error", scenario.mended_at_s
                break
            if now >= speaks_up_s and reason == "stop":
                yield Interrupt(t=now, stream=stream, turn=turn)
                reason = "interrupted"
            if now >= goes_on_until_s:
                break
            frame = session.make(due, turn)
            if session.speech_waits or session.held:
                session.held.append(frame)
            elif luck.random() >= condition.loss_share:
                yield session.hand_over(frame, now)
            if number == 2 and session.listener.reports_rtt:
                rtt_ms = round(answer_s * 1000 + luck.uniform(70, 130), 1)
                yield Rtt(t=now, stream=stream, turn=turn, rtt_ms=rtt_ms)
            due += FRAME_S / (1 + condition.drift_ppm * 1e-6)
        at = due + 0.02
        yield at
        yield TurnEnd(t=at, stream=stream, turn=turn, reason=reason)
        at += luck.uniform(*scenario.pause_s)


def fault(session: Session) -> Process:
    """The scripted fault: at its beginning an outage that ends in a jump, at its end a realignment."""
    scenario, joined_s = session.scenario, session.listener.joins_s
    begins, ends, condition = scenario.fault_at_s, scenario.mended_at_s, scenario.fault
    if begins is None:
        return
    if begins - condition.outage_s >= joined_s and (condition.outage_s or condition.jump_ms):
        at = begins - condition.outage_s
        yield at
        yield from link.cut(session, at, condition.outage_s, condition.jump_ms, session.luck("fault"))
    if ends is not None and ends > joined_s:
        yield ends
        yield from session.realign(ends)
