"""Read a chat's answer from the model server, cut it into frames and add them to its turn, within the memory bounds."""

from __future__ import annotations

import asyncio
import logging

from omniwatch.frames import Kind, add
from omniwatch.media import sse
from omniwatch.resume.encoders import Piece
from omniwatch.resume.store import ResumableTurn, Store
from omniwatch.system.log import LogThrottle

log = logging.getLogger(__name__)


class ResponseReader:
    """Reads one answer's body into one turn (a Taker)."""

    def __init__(
        self, store: Store, stream: ResumableTurn, max_event_bytes: int, keep_times: int, seldom: LogThrottle
    ) -> None:
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
        size, last_id = turn.size, turn.last_id
        try:
            for raw in self._events.feed(body):
                for piece in self._pieces(raw):
                    turn.add(piece)
        except sse.TooLongError as error:
            log.error("a turn of stream %s cannot be resumed from here on: %s", self._stream.name, error)
            self.finish("error")
            return
        self._note_times(last_id)
        fits = self._store.grew(self._stream, turn.size - size)
        self._stream.changed()
        while not fits:
            await self._stream.progress()
            fits = self._store.grew(self._stream, 0)

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
        size, last_id = turn.size, turn.last_id
        for piece in turn.encoder.rest():
            turn.add(piece)
        turn.finish(reason)
        self._note_times(last_id)
        self._store.grew(self._stream, turn.size - size)
        self._stream.changed()
