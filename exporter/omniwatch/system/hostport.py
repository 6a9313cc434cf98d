"""Write a host and a port together, as Go's `net.JoinHostPort`."""

from __future__ import annotations


def join_host_port(host: str, port: int | str) -> str:
    """Return "host:port", an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
