"""Detect 80 ms frames that were lost, repeated, late or corrupt.

Ids are 32 bits and wrap; they are compared by serial arithmetic (RFC 1982).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from omniwatch.frames import add, distance
from omniwatch.settings import Frames


@dataclass(slots=True)
class Findings:
    """What one audio event's ids say: counts of frames; `epoch` when numbering began anew."""

    lost: int = 0
    duplicate: int = 0
    late: int = 0
    loss_runs: int = 0
    epoch: bool = False


@dataclass(slots=True)
class FrameWatch:
    """The next id a stream should send, and the lost ids that may still come late (at most the client's window)."""

    next_id: int = -1
    missing: list[int] = field(default_factory=list)

    def restart(self, first_id: int, count: int) -> None:
        """Begin a new epoch with these frames."""
        self.next_id = add(first_id, count)
        self.missing.clear()

    def observe(self, first_id: int, count: int, windows: Frames) -> Findings:
        """Take the ids first_id .. first_id + count - 1 of one event."""
        step = distance(self.next_id, first_id) if self.next_id >= 0 else 0
        if step > windows.client_win or step < -windows.cache_win:
            self.restart(first_id, count)
            return Findings(epoch=True)
        if step >= 0:
            self.missing += (add(self.next_id, i) for i in range(step))
            del self.missing[: -windows.client_win]
            self.next_id = add(first_id, count)
            return Findings(lost=step, loss_runs=int(step >= windows.rtx_thr))
        return self._seen_before(first_id, count)

    def _seen_before(self, first_id: int, count: int) -> Findings:
        found = Findings()
        for frame_id in (add(first_id, i) for i in range(count)):
            if frame_id in self.missing:
                self.missing.remove(frame_id)
                found.late += 1
            elif distance(self.next_id, frame_id) < 0:
                found.duplicate += 1
            else:
                self.next_id = add(frame_id, 1)
        return found


def is_corrupt(codes: list[int], checksum: int | None, codebook_size: int) -> bool:
    """Whether codes cannot be what was made: `checksum` is not the XOR of codebooks 0-3, or a code is beyond the codebook.

    codebook_size is a power of two, so that a code beyond it has a bit that none within has.
    """
    try:
        a, b, c, d = codes
    except ValueError:
        if len(codes) < 4:
            return bool(codes) and max(codes) >= codebook_size
        a, b, c, d = codes[:4]
        if max(codes) >= codebook_size:
            return True
    return a | b | c | d >= codebook_size or (checksum is not None and a ^ b ^ c ^ d != checksum)
