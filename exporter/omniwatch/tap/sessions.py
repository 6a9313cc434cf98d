"""Remember duplex sessions by the server's ids, for a client that comes back."""

from __future__ import annotations

from collections import Counter

from omniwatch.tap.conversation import Conversation

MAX_LEFT = 256
"""Sessions remembered that no connection carries now."""


class Sessions:
    """An id has one conversation, and a conversation one id.

    What a connection carries stays, so that there are as many as connections, and `max_left` that were left. Beyond it the
    one is forgotten that shares its key and its network with the most others, of equals the one left longest ago.
    """

    def __init__(self, max_left: int = MAX_LEFT) -> None:
        self._max_left = max_left
        self._by_id: dict[str, Conversation] = {}
        """Those left are in the order in which they were left."""

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, session: str) -> Conversation | None:
        """Return the conversation of that id."""
        return self._by_id.get(session)

    def name(self, conversation: Conversation, session: str) -> None:
        """The server says which session this is; one that began with another key keeps its id."""
        former = self._by_id.get(session)
        if former is conversation or (former is not None and former.owner != conversation.owner):
            return
        self._by_id.pop(conversation.session, None)
        if former is not None:
            former.session = ""
        conversation.session = session
        self._by_id[session] = conversation

    def leave(self, conversation: Conversation, now_m: float) -> None:
        """Its connection carries it no more."""
        conversation.holder, conversation.left_m = None, now_m
        if not conversation.session:
            return
        self._by_id[conversation.session] = self._by_id.pop(conversation.session)
        left = [one for one in self._by_id.values() if one.holder is None]
        if len(left) > self._max_left:
            owners = Counter(one.owner for one in left)
            networks = Counter(one.network for one in left)
            crowded = max(left, key=lambda one: owners[one.owner] * networks[one.network])
            del self._by_id[crowded.session]
            crowded.session = ""
