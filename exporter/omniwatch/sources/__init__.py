"""Sources of events: a file, the journal, standard input."""

from __future__ import annotations

from typing import Any, Protocol

from omniwatch.system.errors import UserError


class SourceError(UserError):
    """A source that cannot exist."""


class Source(Protocol):
    """A place whole lines are read from, without blocking, each exactly once.

    `name` is the value of the label `source`. `up` is False while it cannot be read, and `error` then says why in one
    line; `absent` is True where that is only because nothing is there, as before a server's first word. `caught_up` is
    True when the last `read` left nothing unread. `invalid` counts, by reason of `events.REASONS`, lines the source
    itself had to drop (they are never returned); who reads them sets them to 0.
    """

    name: str
    up: bool
    error: str | None
    absent: bool
    caught_up: bool
    invalid: dict[str, int]

    def read(self, budget: int) -> bytes:
        """Return whole lines, each ended by a line feed, about `budget` bytes of them; b"" when there is none now."""

    def state(self) -> dict[str, Any]:
        """The position after what `read` has returned so far, as msgpack-able values, for `restore`."""

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a former run's position."""

    def close(self) -> None:
        """Let go of files and processes."""


def is_pattern(path: str) -> bool:
    """Whether `tail:` takes it for a pattern, and not for the path of one file."""
    return any(sign in path for sign in "*?[")
