"""Frames into speech: in order, each once, damaged ones left out, missing ones asked for again or given up. Pure."""

from __future__ import annotations

import json

from omniwatch.client.playout import Playout
from omniwatch.client.roles import Config, Listener
from omniwatch.client.terms import Terms
from omniwatch.frames import Frame, Kind, add, distance, verify


class Hearing:
    """What was heard of a turn. `place` is the (frame_id, part) up to which all was heard or given up."""

    def __init__(self, listener: Listener, config: Config) -> None:
        self.place = (0, 0)
        self.ended: str | None = None
        """The reason the turn ended for, once it has."""
        self.frame_s = 0.08
        self.cache_win = config.cache_win
        """The most frames asked for at once."""
        self.spoken = self.duplicates = self.corrupt = self.missed = 0
        self.recent: dict[int, memoryview] = {}
        """The newest frames heard, at most `client_win`, by id."""
        self.playout = Playout(config.playout_ms / 1000)
        self._listener = listener
        self._config = config
        self._held: dict[tuple[int, int], Frame] = {}
        self._gap_at: float | None = None
        self._rtx_at = 0.0
        self._codes = False
        self._bytes_per_s = 48_000

    def begin(self, terms: Terms) -> None:
        """The turn is numbered, and asked for again, as the server says."""
        self.place = (add(terms.first_id, -1), 0)
        self.frame_s = terms.frame_ms / 1000
        self.cache_win = terms.cache_win or self.cache_win

    def take(self, now: float, frame: Frame) -> None:
        """Take one frame, in whatever order and however often it comes."""
        if frame.kind == Kind.IDLE or self.ended is not None:
            return
        if not verify(frame, codes=self._codes):
            self.corrupt += 1
            return
        key = (frame.frame_id, frame.part)
        ahead = distance(self.place[0], frame.frame_id)
        if ahead < 0 or (ahead == 0 and frame.part <= self.place[1]) or key in self._held:
            self.duplicates += 1
            return
        while (ahead := distance(self.place[0], frame.frame_id)) > self._config.client_win:
            # More is missing than can be waited for.
            self._pass_over(now, self._missing() if self._held else ahead - 1)
            if self.ended is not None:
                return
        self._held[key] = frame
        self._release(now)

    def settle(self, now: float) -> None:
        """Look after what is missing: ask again, or give up what is not to be waited for any longer."""
        while self._held and self.ended is None:
            run = self._missing()
            if self._gap_at is None:
                self._gap_at = self._rtx_at = now
            if now >= self._patience(run):
                self._pass_over(now, run)
                continue
            if run >= self._config.rtx_thr and now >= self._rtx_at:
                self._rtx_at = now + self._config.rtx_again_s
                self._listener.rtx(add(self.place[0], 1), min(run, self.cache_win))
            return
        self._gap_at = None

    def pause(self) -> None:
        """The network is lost: whoever comes back brings what is missing, and it is not given up before."""
        self._gap_at = None

    def refused(self, now: float, from_id: int) -> None:
        """What was asked for again is not to be had."""
        if self._held and self._gap_at is not None and from_id == add(self.place[0], 1):
            self._pass_over(now, self._missing())
            self.settle(now)

    def wake_at(self) -> float | None:
        """When `settle` is due, though nothing may come."""
        if self._gap_at is None or not self._held:
            return None
        run = self._missing()
        patience = self._patience(run)
        return min(patience, self._rtx_at) if run >= self._config.rtx_thr else patience

    def _missing(self) -> int:
        """Frames of speech between the place and the nearest that waits; 0 where only text is missing.

        What is said after a missing frame does not end the run: the next frame may be missing, too.
        """
        ahead = [distance(self.place[0], frame_id) for frame_id, _ in self._held]
        if min(ahead) == 0:
            return 0
        speech = [distance(self.place[0], frame_id) - 1 for frame_id, part in self._held if part == 0]
        return min(speech) if speech else max(ahead)

    def _may_grow(self) -> bool:
        """Whether the run has no end yet: neither speech nor the end of the turn waits behind it."""
        return not any(part == 0 or frame.kind == Kind.END for (_, part), frame in self._held.items())

    def _patience(self, run: int) -> float:
        began = self._gap_at or 0.0
        if run >= self._config.rtx_thr:
            return began + self._config.rtx_patience_s
        wait_s = self._config.rtx_patience_s if run and self._may_grow() else self._config.reorder_s
        return max(began + wait_s, self.playout.dry_at or 0.0)

    def _pass_over(self, now: float, run: int) -> None:
        """Give up `run` frames of speech after the place, or the text that is missing there."""
        frame_id, part = self.place
        if run:
            self.missed += run
            self.playout.add(now, run * self.frame_s)
            self.place = (add(frame_id, run), 0)
            self._listener.lost(add(frame_id, 1), run)
            # What was said between them is behind the place now.
            between = [key for key in self._held if distance(key[0], self.place[0]) > 0]
            for key in sorted(between, key=lambda key: (distance(frame_id, key[0]), key[1])):
                self._deliver(now, self._held.pop(key))
        else:
            part = min(part for held_id, part in self._held if held_id == frame_id)
            self.place = (frame_id, part - 1)
        self._gap_at = None
        self._release(now)

    def _release(self, now: float) -> None:
        while self.ended is None:
            key = (self.place[0], self.place[1] + 1)
            if key not in self._held:
                key = (add(self.place[0], 1), 0)
                if key not in self._held:
                    return
                # Text that is missing is not waited for once its frame is over; what there is of it comes first.
                key = min((held for held in self._held if held[0] == self.place[0]), default=key)
            frame = self._held.pop(key)
            self.place = (frame.frame_id, frame.part)
            self._gap_at = None
            self._deliver(now, frame)

    def _deliver(self, now: float, frame: Frame) -> None:
        if frame.kind == Kind.SPEECH:
            self.spoken += 1
            self.recent[frame.frame_id] = frame.payload
            if len(self.recent) > self._config.client_win:
                del self.recent[next(iter(self.recent))]
            seconds = self.frame_s if self._codes else len(frame.payload) / self._bytes_per_s
            self._listener.audio(frame.frame_id, frame.payload, self.playout.add(now, seconds))
        elif frame.kind == Kind.TEXT:
            self._listener.text(str(frame.payload, "utf-8"))
        elif frame.kind == Kind.FORMAT:
            sound = json.loads(bytes(frame.payload))
            self._codes = sound["codec"] != "pcm16"
            self._bytes_per_s = 2 * int(sound["sample_rate_hz"]) * int(sound["channels"])
            self._listener.format(sound)
        elif frame.kind == Kind.END:
            self.ended = reason(frame)
        else:
            self._listener.event(frame.payload)


def reason(frame: Frame) -> str:
    """Return the reason of an END frame."""
    return str(json.loads(bytes(frame.payload))["reason"])
