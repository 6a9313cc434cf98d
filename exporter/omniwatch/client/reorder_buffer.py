"""Deliver frames in order and once each; drop damaged ones, request missing ones again or skip them. Pure."""

from __future__ import annotations

import json
from typing import Any

from omniwatch.client.config import Config
from omniwatch.client.headers import TurnHeaders
from omniwatch.client.opus import SpeechDecoder, decoder_of
from omniwatch.client.playout import Playout
from omniwatch.client.protocols import FrameHandler
from omniwatch.frames import Frame, Kind, add, distance, verify

MAX_RATE_HZ = 768_000
MAX_CHANNELS = 32
MAX_JUMP = 45_000
"""Furthest frame ahead that is accepted: an hour of speech. One that is further ahead counts as damaged."""
MAX_CONCEALED = 25
"""Most frames concealed in a row: by then the decoder has faded to silence."""
MAX_HELD = 2048
"""Most frames held behind a missing one, text and events included; what comes on top counts as damaged."""


class ReorderBuffer:
    """Order the frames of one turn. Up to `place`, a (frame_id, part), all frames were delivered or skipped."""

    def __init__(self, handler: FrameHandler, config: Config) -> None:
        self.place = (0, 0)
        self.ended: str | None = None
        """Reason why the turn ended; None before."""
        self.frame_s = 0.08
        self.cache_win = config.cache_win
        """Most frames in one retransmission request."""
        self.spoken = self.duplicates = self.corrupt = self.missed = 0
        self.recent: dict[int, memoryview] = {}
        """Newest frames delivered, by id; at most `client_win`."""
        self.playout = Playout(config.playout_ms / 1000)
        self._handler = handler
        self._config = config
        self._held: dict[tuple[int, int], Frame] = {}
        self._gap_at: float | None = None
        self._rtx_at = 0.0
        self._codes = False
        self._decoder: SpeechDecoder | None = None
        self._concealed = 0
        self._bytes_per_s = 48_000

    def begin(self, headers: TurnHeaders) -> None:
        """Take the turn's numbering and windows from the server's headers."""
        self.place = (add(headers.first_id, -1), 0)
        self.frame_s = headers.frame_ms / 1000
        self.cache_win = headers.cache_win or self.cache_win

    def take(self, now: float, frame: Frame) -> None:
        """Accept one frame, in any order and any number of times."""
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
        if ahead > MAX_JUMP or len(self._held) >= MAX_HELD:
            self.corrupt += 1
            return
        while (ahead := distance(self.place[0], frame.frame_id)) > self._config.client_win:
            # The gap exceeds the window: skip it.
            self._skip(now, self._missing_run() if self._held else ahead - 1)
            if self.ended is not None:
                return
        self._held[key] = frame
        self._release(now)

    def settle(self, now: float) -> None:
        """Request missing frames again, or skip them once their time is over."""
        while self._held and self.ended is None:
            run = self._missing_run()
            if self._gap_at is None:
                self._gap_at = self._rtx_at = now
            if now >= self._wait_until(run):
                self._skip(now, run)
                continue
            if run >= self._config.rtx_thr and now >= self._rtx_at:
                self._rtx_at = now + self._config.rtx_again_s
                self._handler.rtx(add(self.place[0], 1), min(run, self.cache_win))
            return
        self._gap_at = None

    def pause(self) -> None:
        """Stop the timers of missing frames while the connection is lost: the return brings those frames."""
        self._gap_at = None

    def refused(self, now: float, from_id: int) -> None:
        """Skip frames whose retransmission the server refused."""
        if self._held and self._gap_at is not None and from_id == add(self.place[0], 1):
            self._skip(now, self._missing_run())
            self.settle(now)

    def wake_at(self) -> float | None:
        """Return when `settle` is due if no frame arrives; None when nothing is missing."""
        if self._gap_at is None or not self._held:
            return None
        run = self._missing_run()
        skip_at = self._wait_until(run)
        return min(skip_at, self._rtx_at) if run >= self._config.rtx_thr else skip_at

    def _missing_run(self) -> int:
        """Count missing frames of speech before the nearest held one; 0 where only text is missing.

        Text that follows a missing frame does not end the run: the next frame may be missing, too.
        """
        ahead = [distance(self.place[0], frame_id) for frame_id, _ in self._held]
        if min(ahead) == 0:
            return 0
        speech = [distance(self.place[0], frame_id) - 1 for frame_id, part in self._held if part == 0]
        return min(speech) if speech else max(ahead)

    def _may_grow(self) -> bool:
        """Return whether the run may grow: neither speech nor the end of the turn is held behind it."""
        return not any(part == 0 or frame.kind == Kind.END for (_, part), frame in self._held.items())

    def _wait_until(self, run: int) -> float:
        began = self._gap_at or 0.0
        if run >= self._config.rtx_thr:
            return began + self._config.rtx_patience_s
        wait_s = self._config.rtx_patience_s if run and self._may_grow() else self._config.reorder_s
        return max(began + wait_s, self.playout.dry_at or 0.0)

    def _skip(self, now: float, run: int) -> None:
        """Skip `run` frames of speech after the place, or the text that is missing there."""
        frame_id, part = self.place
        if run:
            self.place = (add(frame_id, run), 0)
            self._lose(now, add(frame_id, 1), run)
            # Text and events between the skipped frames are behind the place now.
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
                # Missing text is not waited for once the next frame is here; the text that is held comes first.
                key = min((held for held in self._held if held[0] == self.place[0]), default=key)
            frame = self._held.pop(key)
            self.place = (frame.frame_id, frame.part)
            self._gap_at = None
            self._deliver(now, frame)

    def _lose(self, now: float, from_id: int, count: int) -> None:
        """Conceal frames that will not come, as far as the decoder can; leave the others to the handler."""
        self.missed += count
        while count and self._decoder and self._concealed < MAX_CONCEALED:
            sound = self._decoder.conceal()
            if sound is None:
                break
            self._concealed += 1
            self._handler.audio(from_id, sound, self.playout.add(now, self.frame_s))
            from_id, count = add(from_id, 1), count - 1
        if count:
            self.playout.add(now, count * self.frame_s)
            self._handler.lost(from_id, count)

    def _speak(self, now: float, frame: Frame) -> None:
        sound = self._decoder.decode(frame.payload) if self._decoder else frame.payload
        if sound is None:
            self._lose(now, frame.frame_id, 1)
            return
        self._concealed = 0
        self.spoken += 1
        self.recent[frame.frame_id] = frame.payload
        if len(self.recent) > self._config.client_win:
            del self.recent[next(iter(self.recent))]
        seconds = self.frame_s if self._codes else len(sound) / self._bytes_per_s
        self._handler.audio(frame.frame_id, sound, self.playout.add(now, seconds))

    def _deliver(self, now: float, frame: Frame) -> None:
        if frame.kind == Kind.SPEECH:
            self._speak(now, frame)
        elif frame.kind == Kind.TEXT:
            self._handler.text(str(frame.payload, "utf-8", "replace"))
        elif frame.kind == Kind.FORMAT:
            sound = _sound(frame.payload)
            if sound is None:
                self.ended = "refused: odd format"
                return
            self._decoder, self._concealed = None, 0
            if sound.get("codec") == "opus":
                self._decoder = decoder_of(sound, self.frame_s * 1000)
                if self._decoder is None:
                    self.ended = "refused: odd format"
                    return
                sound |= {"codec": "pcm16"}
            self._codes = sound.get("codec") != "pcm16"
            self._bytes_per_s = 2 * sound["sample_rate_hz"] * sound["channels"]
            self._handler.format(sound)
        elif frame.kind == Kind.END:
            self.ended = end_reason(frame) or "refused: odd end"
        else:
            self._handler.event(frame.payload)


def end_reason(frame: Frame) -> str | None:
    """Return the reason that an END frame states; None for an invalid one."""
    reason = _json_object(frame.payload).get("reason")
    return reason if isinstance(reason, str) else None


def _sound(payload: memoryview) -> dict[str, Any] | None:
    """Return what a FORMAT frame states; None where a number is missing or out of bounds."""
    sound = _json_object(payload)
    for name, most in (("sample_rate_hz", MAX_RATE_HZ), ("channels", MAX_CHANNELS)):
        value = sound.get(name)
        if type(value) is not int or not 1 <= value <= most:
            return None
    return sound


def _json_object(payload: memoryview) -> dict[str, Any]:
    try:
        found = json.loads(bytes(payload))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
