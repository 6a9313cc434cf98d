"""A host and a port, as they are written together."""

from __future__ import annotations


def joined(host: str, port: int | str) -> str:
    """Return "host:port", an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
