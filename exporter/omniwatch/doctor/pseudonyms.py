"""Replace what identifies a client by a pseudonym: the same id gets the same one in every file of a bundle."""

from __future__ import annotations

import ipaddress
import re

from omniwatch.system.hostport import join_host_port

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
_BARE = (
    re.compile(
        r"(?:(?<![\w:.])|(?<=\dm))(?P<host>[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[\w.-]+)?)(?![\w:])"
    ),
    re.compile(r"(?<![\d.])(?P<host>\d{1,3}(?:\.\d{1,3}){3})(?!\.?\d|:\d)"),
)
"""Addresses without a port."""
_VERSION = re.compile(r"(?:\bv|\b(?:version|driver|runtime|cu[a-z]+|lib\w+)\W{1,3})$", re.IGNORECASE)
"""Before four numbers that are a version."""


class Pseudonyms:
    """The same name for the same id, all through."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, str]] = {}

    def __call__(self, kind: str, value: str) -> str:
        """Name a value."""
        known = self._known.setdefault(kind, {})
        return known.setdefault(value, f"{kind}-{len(known) + 1}")

    def unaddressed(self, text: str) -> str:
        """Name every address in a line of a log, one with a port as the contract's `peer` is named; this device's own
        loopback, and 0.0.0.0, are nobody's.
        """
        for form in _ADDRESSES:
            text = form.sub(self._address, text)
        for form in _BARE:
            text = form.sub(self._bare, text)
        return text

    def _address(self, found: re.Match[str]) -> str:
        host, port = found["host"], found["port"]
        return self(CLIENT, join_host_port(host, port)) if _is_elsewhere(host) else found[0]

    def _bare(self, found: re.Match[str]) -> str:
        host = found["host"]
        before = found.string[max(0, found.start() - 20) : found.start()]
        # "::1:80" is an address and its port, too: nobody's either way.
        mine = host.startswith("::") and not _is_elsewhere(host.rpartition(":")[0])
        if mine or not _is_elsewhere(host) or _VERSION.search(before):
            return found[0]
        return self("address", host)


def _is_elsewhere(host: str) -> bool:
    """Whether it is an address, and of another machine than this one."""
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return False
    plain = getattr(ip, "ipv4_mapped", None) or ip
    return not (plain.is_loopback or plain.is_unspecified)
