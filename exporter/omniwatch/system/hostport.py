"""Write a host and a port together, as Go's `net.JoinHostPort`, and tell which network a host is in."""

from __future__ import annotations

import ipaddress


def join_host_port(host: str, port: int | str) -> str:
    """Return "host:port", an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def network_of(address: str) -> str:
    """Return the address; of an IPv6 one the first 64 bits, as one host has all addresses that begin so."""
    try:
        known = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    known = getattr(known, "ipv4_mapped", None) or known
    if isinstance(known, ipaddress.IPv4Address) or known.is_loopback:
        return str(known)
    return str(ipaddress.ip_network((known, 64), strict=False))
