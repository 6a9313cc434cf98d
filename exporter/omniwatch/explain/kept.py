"""Keep the newest judged turns in memory, each as the JSON that is shown of it. Bounded in number and in bytes."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from omniwatch.core.turns import Judged
from omniwatch.explain.text import waterfall

BAD, GOOD = 500, 200
"""Turns kept: the newest bad ones, and the newest good ones."""
BAD_BYTES, GOOD_BYTES = 900_000, 300_000
"""Bytes of JSON kept of each."""
PAGE_BYTES = 1_000_000
"""Bytes of `page` at most."""


def shown(judged: Judged) -> dict[str, Any]:
    """Return a turn's record and verdicts as JSON values, without a name that a client may have given."""
    return judged.record.as_json() | {"verdicts": msgspec.to_builtins(judged.verdicts)}


class KeptTurns:
    """The newest BAD bad turns and the newest GOOD good ones. A restart loses them."""

    def __init__(self) -> None:
        self._bad: deque[bytes] = deque()
        self._good: deque[bytes] = deque()
        self._sizes = {id(self._bad): 0, id(self._good): 0}

    def take(self, judged: Judged) -> None:
        """Keep a turn that was judged."""
        line = msgspec.json.encode(shown(judged))
        if judged.verdicts:
            self._keep(self._bad, line, BAD, BAD_BYTES)
        else:
            self._keep(self._good, line, GOOD, GOOD_BYTES)

    def _keep(self, kept: deque[bytes], line: bytes, most: int, most_bytes: int) -> None:
        kept.append(line)
        self._sizes[id(kept)] += len(line)
        while len(kept) > most or self._sizes[id(kept)] > most_bytes:
            self._sizes[id(kept)] -= len(kept.popleft())

    def one(self, number: int, buffer_s: float) -> bytes | None:
        """Return a turn by its number, with its course as `explain` prints it: {"turn", "text"}; None where it is not kept.

        `buffer_s` is what a player holds back.
        """
        for line in (*reversed(self._bad), *reversed(self._good)):
            turn = msgspec.json.decode(line)
            if turn["number"] == number:
                lines, player, evidence = waterfall(turn, buffer_s, None)
                return msgspec.json.encode({"turn": turn, "text": "\n".join([*lines, player, *evidence])})
        return None

    def page(self, judged: int) -> bytes:
        """Return the turns, bad ones first, the newest of each first, at most BAD and PAGE_BYTES; and how many were `judged`."""
        lines: list[bytes] = []
        left = PAGE_BYTES - 100
        for line in (*reversed(self._bad), *reversed(self._good)):
            left -= len(line) + 1
            if left < 0 or len(lines) == BAD:
                break
            lines.append(line)
        return b'{"turns_judged":%d,"turns":[%s]}\n' % (judged, b",".join(lines))
