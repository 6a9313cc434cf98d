"""Frame mode: lose, repeat and delay single frames of an answer, as a network of datagrams would."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from omniwatch import frames
from omniwatch.desk.link.path import Gilbert
from omniwatch.desk.link.scenario import FrameTrouble
from omniwatch.frames import Frame, Kind

if TYPE_CHECKING:
    from omniwatch.client.http import Response

REPLACED = (b"content-length:", b"transfer-encoding:", b"connection:", b"keep-alive:")
"""Headers that say how the answer ends; its length changes, and the connection ends with it."""


class Late(NamedTuple):
    """A frame held back until so many others have passed."""

    after: int
    wire: bytes


class Framed:
    """Drops, repeats and reorders frames of speech in one HTTP answer; what else a turn says, and other answers, pass.

    An answer in frames is the last of its connection, which it says is to be closed: nothing after it passes.

    The chain of losses is given, for it is the network's and outlives the connection.
    """

    def __init__(self, trouble: FrameTrouble, channel: Gilbert, rng: random.Random) -> None:
        self._trouble = trouble
        self._channel = channel
        self._rng = rng
        self._head = b""
        self._answer: Response | None = None
        self._decoder = frames.Decoder()
        self._passing = self._over = False
        self._passed = 0
        self._late: list[Late] = []
        self.dropped = self.repeated = self.reordered = 0

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the answer, return those to send on."""
        if self._passing:
            return data
        if self._over:
            return b""
        if self._answer is None:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return b""
            head, data = self._head[:end], self._head[end:]
            # Here, since a network that leaves frames alone needs no library of the client.
            from omniwatch.client.http import Response

            answer = Response()
            answer.feed(self._head[: end + 4])
            if answer.headers.get("content-type") != frames.MEDIA_TYPE:
                self._passing = True
                return self._head
            self._answer = answer
            lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(REPLACED)]
            lines += [b"transfer-encoding: chunked", b"connection: close"]
            return b"\r\n".join([*lines, b"", b""]) + self._body(data[4:])
        return self._body(data)

    def _body(self, data: bytes) -> bytes:
        answer = self._answer
        assert answer is not None
        out = []
        for frame in self._decoder.feed(answer.feed(data)):
            out += self._fate(frame)
        self._over = answer.done
        if answer.done:
            out += [late.wire for late in self._late]
            self._late.clear()
        wire = b"".join(out)
        chunk = b"%x\r\n%s\r\n" % (len(wire), wire) if wire else b""
        return chunk + (b"0\r\n\r\n" if answer.done else b"")

    def _fate(self, frame: Frame) -> list[bytes]:
        frame_id, check, mask, kind, part, payload = frame
        wire = frames.encode(frame_id, payload, kind=kind, part=part, expert_mask=mask, check=check)
        if kind != Kind.SPEECH:
            return [wire]
        self._passed += 1
        due = [late.wire for late in self._late if late.after <= self._passed]
        self._late = [late for late in self._late if late.after > self._passed]
        if self._channel.lost():
            self.dropped += 1
        elif self._rng.random() < self._trouble.reorder:
            self.reordered += 1
            self._late.append(Late(self._passed + self._rng.randint(1, self._trouble.depth), wire))
        elif self._rng.random() < self._trouble.repeat:
            self.repeated += 1
            return [wire, wire, *due]
        else:
            return [wire, *due]
        return due
