"""Read a chat's answer from the model server, cut it into frames and add them to its turn, within the memory bounds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import chain, islice

from omniwatch.frames import Kind, add
from omniwatch.media import sse
from omniwatch.resume.encoders import Piece
from omniwatch.resume.store import ResumableTurn, Store
from omniwatch.system.log import LogThrottle

log = logging.getLogger(__name__)
BATCH_PIECES = 4
"""Pieces that a thread makes before the first of them is sent: some 300 ms of speech."""


def own_thread() -> Executor:
    """Return a thread that encodes one turn, in order; it is started with the first work."""
    return ThreadPoolExecutor(1, "omniwatch-encoder")


class ResponseReader:
    """Reads one answer's body into one turn (a Taker).

    What is slow to encode is encoded in a thread of the turn's own: the model server waits for it, the event loop does not.
    """

    def __init__(
        self,
        store: Store,
        stream: ResumableTurn,
        max_event_bytes: int,
        keep_times: int,
        seldom: LogThrottle,
        thread: Callable[[], Executor] = own_thread,
    ) -> None:
        self._thread = thread() if stream.turn.encoder.is_slow else None
        self._is_encoding = False
        self._store = store
        self._stream = stream
        self._events = sse.Events(max_event_bytes)
        self._keep_times = keep_times
        self._seldom = seldom

    async def take(self, body: bytes) -> None:
        """Take a piece of the body; wait while a slow client leaves no room."""
        turn = self._stream.turn
        if turn.ended is not None:
            return
        events: list[bytes] = []
        too_long: sse.TooLongError | None = None
        try:
            for raw in self._events.feed(body):
                events.append(raw)
        except sse.TooLongError as error:
            too_long = error
        pieces = chain.from_iterable(map(self._pieces, events))
        if self._thread is None:
            await self._add(pieces)
        else:
            await self._encode(self._thread, pieces)
        if too_long and turn.ended is None:
            log.error("a turn of stream %s cannot be resumed from here on: %s", self._stream.name, too_long)
            self.finish("error")

    async def _encode(self, thread: Executor, pieces: Iterator[Piece]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._is_encoding = True
            batch = await loop.run_in_executor(thread, lambda: list(islice(pieces, BATCH_PIECES)))
            self._is_encoding = False
            if not batch or self._stream.turn.ended is not None:
                return
            await self._add(batch)

    async def _add(self, pieces: Iterable[Piece]) -> None:
        fits = self._append(pieces)
        while not fits:
            await self._stream.progress()
            fits = self._store.grew(self._stream, 0)

    def _append(self, pieces: Iterable[Piece]) -> bool:
        turn = self._stream.turn
        size, last_id = turn.size, turn.last_id
        for piece in pieces:
            turn.add(piece)
        self._note_times(last_id)
        fits = self._store.grew(self._stream, turn.size - size)
        self._stream.changed()
        return fits

    def _pieces(self, raw: bytes) -> list[Piece]:
        try:
            return list(self._stream.turn.encoder.pieces(raw))
        except (KeyError, TypeError, ValueError) as error:
            # An event of a shape no release had: the client gets it as it is.
            if self._seldom("event"):
                # Its message may quote the event: what a user was told is not for the log.
                kind = type(error).__name__
                log.warning("an event of the model server was not understood and passes as it is: %s", kind)
            return [Piece(Kind.EVENT, raw)]

    def _note_times(self, last_id: int) -> None:
        made_at, now = self._stream.made_at, asyncio.get_running_loop().time()
        while last_id != self._stream.turn.last_id:
            last_id = add(last_id, 1)
            made_at[last_id] = now
        while len(made_at) > self._keep_times:
            made_at.popitem(last=False)

    def finish(self, reason: str) -> None:
        """The answer has ended, or cannot be read on."""
        turn = self._stream.turn
        if turn.ended is not None:
            return
        if not self._is_encoding:
            # Else the turn was cut off: its thread has the encoder, and the frame that it held back is lost.
            self._append(turn.encoder.rest())
        size = turn.size
        turn.finish(reason)
        self._store.grew(self._stream, turn.size - size)
        self._stream.changed()
        if self._thread:
            self._thread.shutdown(wait=False)
