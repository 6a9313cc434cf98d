"""Names in the place of what a client can be known by: the same for the same id, in every file of a bundle."""

from __future__ import annotations

import ipaddress
import re

from omniwatch.addresses import joined

CLIENT = "client"
_PORT = r":(?P<port>\d{1,5})(?!\d)"
_SIX = r"(?P<host>[0-9A-Fa-f]*:[0-9A-Fa-f:.]*(?:%[\w.-]+)?)"
_ADDRESSES = tuple(
    re.compile(form)
    for form in (
        rf"\[{_SIX}\]{_PORT}",
        r"\((?P<quote>\\?['\"])(?P<host>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)(?P=quote), (?P<port>\d{1,5})(?:, \d+, \d+)?\)",
        # As uvicorn writes it, without brackets; no part of a word, but for a colour's sign before it.
        rf"(?:(?<![\w:.])|(?<=\dm)){_SIX}{_PORT}(?![\w:])",
        rf"(?<![\d.])(?P<host>\d{{1,3}}(?:\.\d{{1,3}}){{3}}){_PORT}",
    )
)


class Names:
    """The same name for the same id, all through."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, str]] = {}

    def __call__(self, kind: str, value: str) -> str:
        """Name a value."""
        known = self._known.setdefault(kind, {})
        return known.setdefault(value, f"{kind}-{len(known) + 1}")

    def unaddressed(self, text: str) -> str:
        """Name every address with its port in a line of a log, as the contract's `peer` is named; this device's own
        loopback, and 0.0.0.0, are nobody's.
        """
        for form in _ADDRESSES:
            text = form.sub(self._address, text)
        return text

    def _address(self, found: re.Match[str]) -> str:
        host, port = found["host"], found["port"]
        try:
            ip = ipaddress.ip_address(host)
        except ValueError:
            return found[0]
        plain = getattr(ip, "ipv4_mapped", None) or ip
        if plain.is_loopback or plain.is_unspecified:
            return found[0]
        return self(CLIENT, joined(host, port))
