"""What `watch` knows: the feed so far, put together from what is new each second. Pure."""

from __future__ import annotations

from typing import Any

from omniwatch.system.errors import UserError

SCHEMA = 1
"""Number of the feed that is understood."""
SAMPLES = 900

Column = list[float | None]


class Window:
    """The newest feed, and both curves of each slot up to SAMPLES."""

    def __init__(self) -> None:
        self.feed: dict[str, Any] = {}
        self.curves: dict[str, dict[str, Column]] = {}
        self.length = 0

    @property
    def cursor(self) -> str:
        """What to ask with next."""
        return str(self.feed.get("cursor", ""))

    def take(self, feed: dict[str, Any]) -> None:
        """Take an answer. Raises UserError where it is of another version of the feed."""
        if feed.get("schema") != SCHEMA:
            raise UserError(
                f"the sidecar speaks version {feed.get('schema')} of the feed, this program {SCHEMA}: use its omniwatch"
            )
        if feed["reset"]:
            self.curves, self.length = {}, 0
        count, columns = feed["history"]["count"], feed["history"]["columns"]
        for slot in columns.keys() - self.curves.keys():
            self.curves[slot] = {name: [None] * self.length for name in ("drift", "rtt")}
        for slot, curves in self.curves.items():
            for name, values in curves.items():
                values += columns.get(slot, {}).get(name) or [None] * count
                del values[:-SAMPLES]
        self.length = min(SAMPLES, self.length + count)
        self.feed = feed
