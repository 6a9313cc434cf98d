"""Store resumable turns: found by an unguessable id, bounded in number and bytes, dropped after the grace."""

from __future__ import annotations

import asyncio
import base64
import hmac
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from math import inf
from typing import Protocol

from omniwatch.frames import distance
from omniwatch.resume.turn import Turn
from omniwatch.settings import Resume
from omniwatch.system.token_bucket import TokenBucket
from omniwatch.tap.claim import Claim

MAX_GONE = 4096
"""How many ids are remembered after their turn was let go, to answer 410 instead of 404."""


ID_BYTES, MAC_BYTES = 24, 8
ABORTED_WITHIN_S = 1.0
"""Whoever leaves so soon makes room where there is none."""


class Connection(Protocol):
    """The connection that a turn is sent to, or is about to be; `index` is the entry it sends next."""

    index: int

    def supersede(self) -> None:
        """End it: a newer one has come."""


class ResumableTurn:
    """One turn, the connection it is sent to, and the model server's request that produces it.

    `name` is the stream's name in events, `id_` the secret under which it is resumed, `address` the client's. `cancel` stops the model
    server. `claim` is what the tap says of the turn.
    """

    def __init__(
        self,
        id_: str,
        name: str,
        turn: Turn,
        cancel: Callable[[], None],
        limits: Resume,
        address: str,
        claim: Claim,
    ) -> None:
        now = asyncio.get_running_loop().time()
        self.id = id_
        self.name = name
        self.address = address
        self.claim = claim
        self.authorization = b""
        """Digest of the `Authorization` that the chat began with; whoever comes back must send the same."""
        self.began = now
        self.aborted = False
        """Whether its client left within ABORTED_WITHIN_S of its begin."""
        self.returned: tuple[int, int] | None = None
        """Where the client stood when it was last sent on."""
        self.turn = turn
        self.cancel = cancel
        self.listener: Connection | None = None
        self.away_since = now
        self.cross_origin: list[tuple[bytes, bytes]] = []
        """Headers of the model server's answer that all answers of the stream repeat."""
        self.attempt = 0
        """The latest attempt of a client that numbers them."""
        self.resumes = TokenBucket(limits.resumes_per_s, limits.resumes_burst, now)
        self.rtxs = TokenBucket(limits.rtx_per_s, limits.rtx_burst, now)
        self.made_at: OrderedDict[int, float] = OrderedDict()
        """When each of the newest frames of speech was made (loop time), by id."""
        self._changed: asyncio.Future[None] | None = None
        self._progress: asyncio.Future[None] | None = None
        self.expiry: asyncio.TimerHandle | None = None

    def made_at_of(self, frame_id: int) -> float:
        """Return when a frame of speech was made: infinity before it is, minus infinity when that is forgotten."""
        if distance(frame_id, self.turn.last_id) < 0:
            return inf
        return self.made_at.get(frame_id, -inf)

    def changed(self) -> None:
        """Wake the listener: there is more to send, or nothing will follow."""
        if self._changed and not self._changed.done():
            self._changed.set_result(None)

    def progressed(self) -> None:
        """Wake the model server's side: there may be room again."""
        if self._progress and not self._progress.done():
            self._progress.set_result(None)

    async def change(self, timeout_s: float) -> None:
        """Wait until `changed`, at most `timeout_s`."""
        loop = asyncio.get_running_loop()
        self._changed = loop.create_future()
        timer = loop.call_later(timeout_s, self.changed)
        try:
            await self._changed
        finally:
            timer.cancel()

    async def progress(self) -> None:
        """Wait until `progressed`."""
        self._progress = asyncio.get_running_loop().create_future()
        await self._progress


class Store:
    """All streams that can be resumed."""

    def __init__(self, limits: Resume) -> None:
        self._limits = limits
        self._streams: dict[str, ResumableTurn] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._secret = secrets.token_bytes(16)
        self.size = 0
        """Bytes held by all turns."""
        self._reserved: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[ResumableTurn]:
        return iter(self._streams.values())

    @property
    def reserved(self) -> int:
        """Streams about to begin."""
        return self._reserved.total()

    def new_id(self) -> str:
        """Return an id that nobody can guess, and that is known again as one of this store's."""
        random = secrets.token_urlsafe(ID_BYTES)
        return random + self._mac(random)

    def issued(self, stream_id: str) -> bool:
        """Whether an id was made here, however long ago."""
        length = ID_BYTES * 4 // 3
        mac = self._mac(stream_id[:length])
        return hmac.compare_digest(mac.encode(), stream_id[length:].encode())

    def _mac(self, text: str) -> str:
        digest = hmac.digest(self._secret, text.encode(), "sha256")[:MAC_BYTES]
        return base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def reserve(self, address: str) -> bool:
        """Take a place for a stream of a client that is about to begin.

        Room is made by a finished turn that nobody listens to, then by one whose client left at once. Where the client's
        address has its share, only by one of its own, in the end also by one that goes on.
        """
        while self._held(address) >= self._limits.max_streams_per_address:
            own = self._idlest(lambda stream: stream.address == address)
            if own is None:
                return False
            self.drop(own)
        while len(self._streams) + self.reserved >= self._limits.max_streams:
            idle = self._idlest(lambda stream: stream.turn.ended is not None or stream.aborted)
            if idle is None:
                return False
            self.drop(idle)
        self._reserved[address] += 1
        return True

    def give_back(self, address: str) -> None:
        """Give back a place that was taken for a stream that does not begin."""
        self._reserved[address] -= 1
        if not self._reserved[address]:
            del self._reserved[address]

    def _held(self, address: str) -> int:
        return self._reserved[address] + sum(s.address == address for s in self._streams.values())

    def open(self, stream: ResumableTurn, listener: Connection) -> None:
        """Add a stream on a reserved place; `listener` is about to send it, and nothing is let go before it has."""
        self.give_back(stream.address)
        self._streams[stream.id] = stream
        stream.listener = listener

    def get(self, stream_id: str) -> ResumableTurn | None:
        """Return the stream of an id, None when there is none."""
        return self._streams.get(stream_id)

    def is_gone(self, stream_id: str) -> bool:
        """Whether there was a stream of that id not long ago."""
        return stream_id in self._gone

    def attach(self, stream: ResumableTurn, listener: Connection) -> None:
        """Send a stream to `listener` from now on; one that had it is ended."""
        if stream.listener and stream.listener is not listener:
            stream.listener.supersede()
        if stream.expiry:
            stream.expiry.cancel()
        stream.listener = listener
        stream.aborted = False
        stream.progressed()

    def detach(self, stream: ResumableTurn, listener: Connection) -> None:
        """`listener` has left: unless another has taken over, the grace begins."""
        if stream.listener is not listener or stream.id not in self._streams:
            return
        stream.listener = None
        loop = asyncio.get_running_loop()
        stream.away_since = loop.time()
        stream.aborted = loop.time() - stream.began < ABORTED_WITHIN_S
        stream.expiry = loop.call_later(self._limits.grace_s, self.drop, stream)
        stream.progressed()

    def drop(self, stream: ResumableTurn) -> None:
        """Let go of a stream; what makes it is stopped."""
        if self._streams.pop(stream.id, None) is None:
            return
        stream.claim.let_go()
        self._gone[stream.id] = None
        if len(self._gone) > MAX_GONE:
            self._gone.popitem(last=False)
        self.size -= stream.turn.size
        if stream.expiry:
            stream.expiry.cancel()
        if stream.listener:
            stream.listener.supersede()
        if stream.turn.ended is None:
            stream.cancel()
        stream.progressed()

    def grew(self, stream: ResumableTurn, by: int) -> bool:
        """Account for bytes added to a stream; return False when no more should be added until it has progressed.

        A turn that nobody listens to grows on, and lets go of its beginning. One that is sent to a slow reader waits for
        it, so that nothing is lost unsent, and takes no more than its share of the memory while it does. Where all is
        sent there is nothing to wait for: what is too much then is let go of, of the last frames, too.
        """
        if stream.id not in self._streams:
            return True
        self.size += by
        fits = self._shrink(stream, self._limits.turn_bytes, spare_window=False)
        self._relieve()
        if stream.listener is None or stream.listener.index >= stream.turn.end:
            return True
        share = self._limits.total_bytes // (2 * self._limits.max_streams)
        crowded = self.size > self._limits.total_bytes and stream.turn.size > share
        return fits and not crowded and stream.turn.unsent <= share

    def _shrink(self, stream: ResumableTurn, max_bytes: int, *, spare_window: bool) -> bool:
        before = stream.turn.size
        keep_from = stream.listener.index if stream.listener else stream.turn.end
        fits = stream.turn.shrink(max_bytes, keep_from, spare_window=spare_window)
        self.size += stream.turn.size - before
        return fits

    def _relieve(self) -> None:
        """Come back under the bound in all: first turns that are over go, then what is no window, then of the windows.

        The largest turns give first.
        """
        while self.size > self._limits.total_bytes:
            idle = self._idlest(lambda stream: stream.turn.ended is not None)
            if idle is None:
                break
            self.drop(idle)
        for spare_window in (True, False):
            if self.size <= self._limits.total_bytes:
                break
            for stream in sorted(self._streams.values(), key=lambda each: -each.turn.size):
                over = self.size - self._limits.total_bytes
                if over <= 0:
                    break
                max_bytes = 0 if spare_window else max(0, stream.turn.size - over)
                self._shrink(stream, max_bytes, spare_window=spare_window)

    def _idlest(self, among: Callable[[ResumableTurn], bool]) -> ResumableTurn | None:
        """The turn without a listener that is missed least: a finished one, then one whose client left at once; of several
        the one that has been alone for the longest.
        """
        alone = [stream for stream in self._streams.values() if stream.listener is None and among(stream)]
        return min(alone, key=lambda s: (s.turn.ended is None, not s.aborted, s.away_since), default=None)

    def close(self) -> None:
        """Let go of everything."""
        for stream in list(self._streams.values()):
            self.drop(stream)
