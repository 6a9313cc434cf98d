"""Keep what the live page would have shown at each second of a recording, and answer for any of them."""

from __future__ import annotations

import gzip
import re
import zlib
from array import array
from collections.abc import Callable, Iterable
from math import nan
from typing import Any

import msgspec

from omniwatch import events
from omniwatch.core.samples import Sample
from omniwatch.core.turns import Judged
from omniwatch.ingest.intake import Intake
from omniwatch.live.feed import GZIP_LEVEL, TURNS, Feed, samples, worst
from omniwatch.live.history import SECONDS, History
from omniwatch.metrics.snapshot import ScrapeSnapshot
from omniwatch.replay.table import RecordedTable
from omniwatch.settings import Settings

MOST = 8 * 3600
"""Seconds kept. Of a longer recording every second one, every fourth, and so on."""
JUMP_S = 3600.0
"""A jump of the recording's times by more, or back, is a clock that was set or a pause: the page does not wait it out."""
BACK_S = 1.0
_MOMENT = re.compile(r"at\.([0-9]{1,9})", re.ASCII)
Json = dict[str, Any]


class ReadAtOnce(Intake):
    """What is read of a recording is never late."""

    def lag_s(self, now: float) -> float:
        """None."""
        return 0.0


class Recorded(RecordedTable):
    """A stream table that keeps the feed of each second. Call `finish` after the last event.

    Times follow from the newest sample's, as in the sidecar's own history: what was before a clock was set moves with it.
    """

    def __init__(
        self,
        settings: Settings,
        name: str,
        intake: Intake,
        judged: Callable[[Judged], None],
        device: Iterable[Sample] = (),
    ) -> None:
        """`judged` takes each turn that was judged, too; `device` are samples of the device of that time."""
        super().__init__(settings, self._judge, device)
        self.step = 1
        """Seconds from one moment kept to the next."""
        self._name, self._intake, self._judged = name, intake, judged
        self._history = History(settings.alerts)
        self._feed = Feed(settings, self._history, 0)
        self._number = -1
        self._due: float | None = None
        self._cursor = ""
        self._moments: list[tuple[float, bytes]] = []
        """Of each moment kept: its time, and what is not history, packed."""
        self._curves: dict[str, dict[str, array[float]]] = {}
        self._states: dict[tuple[object, ...], tuple[int, int | None, Json]] = {}
        """By rule, slot, state and start: the numbers of the samples at which it was first seen, and seen over."""
        self._turns: list[tuple[int, Json]] = []

    def apply_all(self, batch: Iterable[events.Event], source: str = "") -> None:
        """Take events in their order, each after the seconds that were over before it."""
        for event in batch:
            if self._due is None or not -BACK_S <= event.t - self._due + 1 <= JUMP_S:
                self._due = event.t
            while self._due <= event.t:
                self.advance(self._due)
                self._keep(self._due)
                self._due += 1
            super().apply_all((event,), source)

    def finish(self) -> None:
        """Keep the last second, and judge the turns that had ended."""
        if self._due is not None:
            self.advance(self._due)
            self._keep(self._due)
        super().finish()

    def _judge(self, judged: Judged) -> None:
        stream, bad = self.state.streams.get(judged.stream), worst(judged)
        if stream is not None and bad is not None:
            stream.bad = bad
        self._feed.judged(judged)
        self._judged(judged)

    def _keep(self, now: float) -> None:
        self._number += 1
        view = ScrapeSnapshot(now, self, [self._intake])
        self._history.add(self._number, now, samples(view))
        if self._number % self.step:
            return
        self._feed.build(view, {})
        news = msgspec.json.decode(self._feed.answer(self._cursor))
        self._cursor = news["cursor"]
        history, states, turns = (news.pop(name) for name in ("history", "states", "turns"))
        self._draw(history["columns"])
        for one in states:
            known = self._states.get(key := (one["rule"], one["slot"], one["state"], one["start"]))
            began, over = (known[0], known[1]) if known else (self._number, None)
            if over is None and one["end"] is not None:
                over = self._number
            self._states[key] = began, over, one
        self._turns += [(self._number, turn) for turn in turns]
        self._moments.append((now, zlib.compress(msgspec.json.encode(news), 1)))
        if len(self._moments) > MOST:
            self._thin()

    def _draw(self, columns: dict[str, dict[str, list[float | None]]]) -> None:
        """Add the newest sample of each slot's curves."""
        for slot in columns.keys() - self._curves.keys():
            self._curves[slot] = {name: array("f", [nan]) * len(self._moments) for name in ("drift", "rtt")}
        for slot, curves in self._curves.items():
            for name, curve in curves.items():
                values = columns.get(slot, {}).get(name)
                curve.append(nan if not values or values[-1] is None else values[-1])

    def _thin(self) -> None:
        """Keep every second moment."""
        self.step *= 2
        self._moments = self._moments[::2]
        self._curves = {
            slot: {name: curve[::2] for name, curve in curves.items()}
            for slot, curves in self._curves.items()
        }

    def answer(self, cursor: str) -> bytes:
        """Return the whole window up to the moment that a cursor "at.NUMBER" names, as JSON; without one, up to the last."""
        asked = _MOMENT.fullmatch(cursor)
        last = min(int(asked[1]) if asked else MOST, len(self._moments) - 1)
        first = max(0, last - SECONDS + 1)
        now, packed = self._moments[last]
        number, start_t = last * self.step, now - (last - first) * self.step
        states = [
            one if over is not None and over <= number else one | {"end": None}
            for began, over, one in self._states.values()
            if began <= number and (over is None or over > number or one["end"] >= start_t)
        ]
        part = {
            "reset": True,
            "history": {
                "step": self.step,
                "first": first,
                "start": start_t,
                "count": last - first + 1,
                "columns": self._columns(first, last + 1),
            },
            "states": states,
            "turns": [turn for seen, turn in self._turns if seen <= number][-TURNS:],
            "replay": {"file": self._name, "moment": last, "moments": len(self._moments), "step": self.step},
        }
        return msgspec.json.encode(msgspec.json.decode(zlib.decompress(packed)) | part)

    def packed(self, cursor: str, packed: bool) -> bytes:
        """Return `answer`, compressed by gzip if `packed`."""
        answer = self.answer(cursor)
        return gzip.compress(answer, GZIP_LEVEL, mtime=0) if packed else answer

    def _columns(self, first: int, end: int) -> dict[str, dict[str, list[float | None]]]:
        found = {}
        for slot, curves in self._curves.items():
            lists = {
                name: [None if value != value else round(value, 1) for value in curve[first:end]]
                for name, curve in curves.items()
            }
            if shown := {
                name: values for name, values in lists.items() if any(v is not None for v in values)
            }:
                found[slot] = shown
        return found
