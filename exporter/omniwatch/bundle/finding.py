"""What one look at an installation has found."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """One thing looked at, in one line. `ok` is None where there is nothing to judge."""

    what: str
    ok: bool | None
    says: str


class Unseen(Finding):
    """What could not be looked at: nobody knows whether it is well."""

    __slots__ = ()
