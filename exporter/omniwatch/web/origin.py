"""Reject requests that another site made a browser send: a foreign `Origin` (CSRF) or `Host` (DNS rebinding)."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable
from typing import Any

from omniwatch.web.response import Response

PageAnswer = Callable[[dict[str, Any]], Response]
_HOST = re.compile(r"(?:\[(?P<six>[^\]]*)\]|(?P<host>[^:\[\]]*))(?::[0-9]{0,5})?")


def guarded(answer: PageAnswer, hosts: Callable[[], Iterable[str]]) -> PageAnswer:
    """Return a page that answers only where it is asked for by an address or by one of its names, by no page but its own.

    Programs send no `Origin`, old ones no `Host`: they pass.
    """

    def checked(environ: dict[str, Any]) -> Response:
        host, origin = environ.get("HTTP_HOST"), environ.get("HTTP_ORIGIN")
        if host is not None and not is_own(host, hosts()):
            why = "this host is not known here; add its name to site.hosts (for a fleet file: --web.host)\n"
            return Response("403 Forbidden", why.encode())
        if origin is not None and origin.partition("://")[2].lower() != (host or "").lower():
            return Response("403 Forbidden", b"asked for by a page of another site\n")
        return answer(environ)

    return checked


def is_own(host: str, names: Iterable[str]) -> bool:
    """Whether a `Host` is an address, localhost, the host's own name or one of `names`: no name that others can point here."""
    parts = _HOST.fullmatch(host.strip())
    if not parts:
        return False
    name = (parts["six"] or parts["host"] or "").lower().rstrip(".")
    try:
        ipaddress.ip_address(name.partition("%")[0])
        return True
    except ValueError:
        pass
    own = socket.gethostname().lower()
    return name in {"localhost", own, own.partition(".")[0], *(known.lower() for known in names)}
