"""Days of listeners who ask and are answered, as the events that a server writes of it."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from omniwatch import events as ev

DAY_S, HOUR_S = 86_400, 3600
T0 = 1_700_006_400
"""Midnight, UTC: a whole number of days since the epoch."""
IN_TIME_S, LATE_S = (0.36, 0.56), (0.85, 2.5)
"""From text to first speech. A late answer is over `alerts.red_line_ms` and over `alerts.rtt_page_ms`."""
PICTURE_S = 20.0
"""From one picture of the camera to the next: often enough that a session does not go stale between two questions."""
CHUNK_S, PACE = 1.0, 0.5
"""Speech is sent in chunks of so much, twice as fast as it is heard."""
BUFFER_S = 0.08
STARVED_S = (0.1, 0.4)
"""For how long the listener of a bad turn hears nothing in its middle. So much the voice is behind for the rest of the turn."""

Bounds = tuple[float, float]
Pattern = Literal["alone", "pairs", "chance", "fives"]
RUNS: dict[Pattern, int] = {"alone": 1, "pairs": 2, "fives": 5}
"""Late answers of a listener in a row; then at least one is in time. By chance any number may be."""


@dataclass(frozen=True)
class Cell:
    """What listeners go through, day after day."""

    name: str
    listeners: int = 1
    late: float = 0.0
    pattern: Pattern = "chance"
    bad: float = 0.0
    """Share of turns whose listener starves for a moment, so that voice and picture are out of sync."""
    failed: float = 0.0
    """Share of turns that end with an error, without speech."""
    talk_s: Bounds = (7 * HOUR_S, 23 * HOUR_S)
    every_s: Bounds = (40.0, 80.0)
    """From one question of a listener to the next."""
    speech_s: Bounds = (4.0, 12.0)
    each_its_session: bool = False
    """A session per question, in place of one a day with a camera."""
    begins_s: float = 0.0
    """Seconds from the first midnight before which all is well."""

    @property
    def answers_a_day(self) -> float:
        """Answers of one listener, on average."""
        return (self.talk_s[1] - self.talk_s[0]) / (sum(self.every_s) / 2)


def events(cell: Cell, days: int, seed: int = 0) -> Iterator[ev.Event]:
    """Yield what the server writes in so many days from T0 on, in the order of time."""
    return heapq.merge(
        *(_listener(cell, number, days, seed) for number in range(cell.listeners)), key=attrgetter("t")
    )


def late_answers(share: float, pattern: Pattern, luck: random.Random) -> Iterator[bool]:
    """Yield for each answer of a listener whether it is late; `share` are."""
    if pattern == "chance":
        while True:
            yield luck.random() < share
    run = RUNS[pattern]
    begins = share / (run * (1 - share)) if share < 1 else 1.0
    while True:
        if luck.random() < begins:
            yield from [True] * run
        if share < 1:
            yield False


def _listener(cell: Cell, number: int, days: int, seed: int) -> Iterator[ev.Event]:
    luck = random.Random(f"{cell.name}/{seed}/{number}")
    late = late_answers(cell.late, cell.pattern, luck)
    for day in range(days):
        start_t, end_t = (T0 + day * DAY_S + at for at in cell.talk_s)
        start_t += luck.uniform(0, cell.every_s[0])
        talk = _questions(cell, f"{number}-{day}", start_t, end_t, late, luck)
        if cell.each_its_session:
            yield from talk
        else:
            yield from heapq.merge(talk, _camera(f"{number}-{day}", start_t, end_t), key=attrgetter("t"))


def _camera(stream: str, start_t: float, end_t: float) -> Iterator[ev.Event]:
    yield ev.StreamStart(t=start_t, stream=stream)
    for number in range(int((end_t - start_t) / PICTURE_S)):
        yield ev.Video(t=start_t + number * PICTURE_S, stream=stream, pts_ms=number * PICTURE_S * 1000)
    yield ev.StreamEnd(t=end_t, stream=stream, reason="left")


def _questions(
    cell: Cell, session: str, start_t: float, end_t: float, late: Iterator[bool], luck: random.Random
) -> Iterator[ev.Event]:
    """Yield a day's turns, the last of them over by its end."""
    t, turn = start_t, 0
    while t < end_t - cell.every_s[1]:
        turn += 1
        stream = f"{session}-{turn}" if cell.each_its_session else session
        if cell.each_its_session:
            yield ev.StreamStart(t=t, stream=stream)
        asked_t, ended_t = t + luck.uniform(0.5, 2.0), t
        is_late, spoiled = next(late), t >= T0 + cell.begins_s
        for event in _turn(cell, stream, turn, asked_t, is_late and spoiled, spoiled, luck):
            ended_t = event.t
            yield event
        if cell.each_its_session:
            yield ev.StreamEnd(t=ended_t + 0.1, stream=stream, reason="done")
        t += luck.uniform(*cell.every_s)


def _turn(
    cell: Cell, stream: str, turn: int, t: float, is_late: bool, spoiled: bool, luck: random.Random
) -> Iterator[ev.Event]:
    yield ev.TurnStart(t=t, stream=stream, turn=turn)
    if luck.random() < cell.failed and spoiled:
        yield ev.TurnEnd(t=t + luck.uniform(0.05, 0.4), stream=stream, turn=turn, reason="error")
        return
    t += luck.uniform(*(LATE_S if is_late else IN_TIME_S))
    chunks = max(2, round(luck.uniform(*cell.speech_s) / CHUNK_S))
    starves = luck.randint(1, chunks // 2) if luck.random() < cell.bad and spoiled else 0
    heard_t = t + BUFFER_S
    for chunk in range(chunks):
        if starves and chunk == starves:
            t = heard_t + luck.uniform(*STARVED_S)
        yield ev.Audio(t=t, stream=stream, turn=turn, dur_ms=CHUNK_S * 1000)
        heard_t = max(heard_t, t) + CHUNK_S
        t += CHUNK_S * PACE
    yield ev.TurnEnd(t=t, stream=stream, turn=turn, reason="stop")
