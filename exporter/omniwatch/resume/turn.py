"""Hold the entries of one turn by position, and find where a returning client continues. Pure."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from omniwatch.frames import Kind, add, distance
from omniwatch.resume.encoders import Encoder, Piece

ENTRY_BYTES = 120
"""What an entry takes beside its bytes on the wire."""


class Found(NamedTuple):
    """Where to go on: `result` is of RESUME_RESULTS, `entry` is the first to send (hit and replay only)."""

    result: str
    entry: int = 0


class Turn:
    """The entries of one turn, numbered from 0 in the order they are sent; the oldest may have been let go.

    `sent` is how many entries were handed to the network at least once, `unsent` the bytes held of all others, `size` the
    bytes held.
    """

    def __init__(self, encoder: Encoder, first_id: int, cache_win: int) -> None:
        self.encoder = encoder
        self.first_id = first_id
        self.last_id = add(first_id, -1)
        """The newest frame of speech; before any, the id before the first."""
        self.ended: str | None = None
        """Why nothing follows, once nothing does."""
        self.sent = 0
        self.size = 0
        self.unsent = 0
        self._cache_win = cache_win
        self._part = 0
        self._wires: list[bytes] = []
        self._base = 0
        # Entry numbers of the frames of speech, from the frame before the turn's first (which has none: -1).
        self._starts = [-1]
        self._starts_id = self.last_id

    def add(self, piece: Piece) -> None:
        """Append what the model server said."""
        if piece.kind == Kind.SPEECH:
            self.last_id = add(self.last_id, 1)
            self._part = 0
            self._starts.append(self.end)
        else:
            self._part += 1
        self._append(self.encoder.wire(piece, self.last_id, self._part))

    def finish(self, reason: str) -> None:
        """Say that nothing follows."""
        self.ended = reason
        self._part += 1
        wire = self.encoder.ended(reason, self.last_id, self._part)
        if wire:
            self._append(wire)

    def _append(self, wire: bytes) -> None:
        self._wires.append(wire)
        self.size += len(wire) + ENTRY_BYTES
        self.unsent += len(wire)

    def mark_sent(self, index: int) -> None:
        """Note that the entries before `index` were handed to the network."""
        if index > self.sent:
            fresh, stop = max(0, self.sent - self._base), max(0, index - self._base)
            self.unsent -= sum(map(len, self._wires[fresh:stop]))
            self.sent = index

    @property
    def sent_id(self) -> int:
        """The newest frame of speech that was handed to the network; before any, the id before the first."""
        return add(self._starts_id, max(0, bisect_left(self._starts, self.sent) - 1))

    @property
    def end(self) -> int:
        """The number of the entry that comes next."""
        return self._base + len(self._wires)

    @property
    def oldest(self) -> int:
        """The number of the oldest entry that is held."""
        return self._base

    @property
    def whole(self) -> bool:
        """Whether all of the turn so far is held."""
        return self._base == 0

    def batch(self, index: int, max_bytes: int) -> tuple[bytes, int]:
        """Return entries from `index` on as bytes, at least one if there is any, and the number after them."""
        start = stop = index - self._base
        size = 0
        while stop < len(self._wires) and (stop == start or size + len(self._wires[stop]) <= max_bytes):
            size += len(self._wires[stop])
            stop += 1
        return b"".join(self._wires[start:stop]), stop + self._base

    def speech_ends(self, index: int, stop: int) -> list[tuple[int, int]]:
        """Return where frames of speech end among the entries from `index` on, before `stop`.

        Each as the bytes from there to the end of the last entry, and how many frames the turn has up to there.
        """
        first = max(0, bisect_left(self._starts, index))
        last = bisect_left(self._starts, stop)
        counted = distance(self.first_id, self._starts_id) + 1
        left = sum(len(wire) for wire in self._wires[index - self._base : stop - self._base])
        ends, at = [], index
        for number in range(first, last):
            entry = self._starts[number]
            left -= sum(len(wire) for wire in self._wires[at - self._base : entry + 1 - self._base])
            at = entry + 1
            ends.append((left, counted + number))
        return ends

    def find(self, last_good_id: int, part: int = 0, *, rest: bool = False) -> Found:
        """Say where a client goes on that has everything up to (last_good_id, part).

        A replay begins with the turn, unless only the `rest` is asked for.
        """
        behind = distance(last_good_id, self.last_id)
        known = distance(self._starts_id, last_good_id)
        if behind < 0:
            return Found("ahead")
        entry = self._after(last_good_id) + part if known >= 0 else 0
        if entry > self.sent or (known >= 0 and behind and entry >= self._after(add(last_good_id, 1))):
            return Found("ahead")
        if known >= 0 and behind <= self._cache_win and entry >= self._base:
            return Found("hit", entry)
        if not self.whole:
            return Found("gone")
        return Found("replay", entry if rest else 0)

    def speech(self, from_id: int, count: int) -> tuple[str, list[tuple[int, bytes]]]:
        """Return ("hit" or "partial", the entries of `count` frames, with what else was said after each) or ("miss", []).

        Each comes with its frame id. Frames that were not sent yet are left out.
        """
        found = []
        for frame_id in (add(from_id, i) for i in range(count)):
            known = distance(self._starts_id, frame_id)
            if known < 0 or known >= len(self._starts):
                continue
            start = self._starts[known]
            stop = self._starts[known + 1] if known + 1 < len(self._starts) else self.end
            if self._base <= start < self.sent and start >= 0:
                wires = self._wires[start - self._base : min(stop, self.sent) - self._base]
                found.append((frame_id, b"".join(wires)))
        return ("hit" if len(found) == count else "partial" if found else "miss"), found

    def _after(self, frame_id: int) -> int:
        """The number of the entry after a frame of speech (after nothing: 0)."""
        return self._starts[distance(self._starts_id, frame_id)] + 1

    def shrink(self, max_bytes: int, keep_from: int, *, spare_window: bool = True) -> bool:
        """Let go of the oldest entries until `max_bytes` are held, but of none of the last frames nor from `keep_from` on.

        The last frames are spared no longer with `spare_window` False. Returns whether no more than `max_bytes` are held.
        """
        if self.whole and self.size <= max_bytes:
            return True
        window_id = add(self.last_id, -self._cache_win)
        keep = min(keep_from, self._after(window_id) if distance(self._starts_id, window_id) > 0 else 0)
        # Once a turn is no longer whole, only the window is of use.
        self._drop(keep)
        if not spare_window:
            over, oldest = self.size - max_bytes, self._base
            while over > 0 and oldest < min(keep_from, self.end):
                over -= len(self._wires[oldest - self._base]) + ENTRY_BYTES
                oldest += 1
            self._drop(oldest)
        return self.size <= max_bytes

    def _drop(self, stop: int) -> None:
        """Let go of the entries before `stop`."""
        drop = max(0, stop - self._base)
        self.size -= sum(len(wire) + ENTRY_BYTES for wire in self._wires[:drop])
        self.unsent -= sum(map(len, self._wires[max(0, self.sent - self._base) : drop]))
        del self._wires[:drop]
        self._base += drop
        self._forget_starts()

    def _forget_starts(self) -> None:
        """Forget numbers of frames that are let go of, but for the last such: what follows it is still held."""
        gone = 0
        while gone + 1 < len(self._starts) and self._starts[gone + 1] < self._base:
            gone += 1
        del self._starts[:gone]
        self._starts_id = add(self._starts_id, gone)
