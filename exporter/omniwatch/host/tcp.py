"""Smoothed round-trip times of TCP connections, asked of the kernel (INET_DIAG), without privileges.

A stream is known by its peer alone ("ip:port"), so each question is a dump of the connections of one address family,
narrowed inside the kernel to the wanted peers. Only connections of this network namespace are seen.

What counts as the round-trip time, `latency_ms`:

* The kernel's smoothed estimate (tcpi_rtt). It moves only when something is acknowledged, so in an outage it stands
  still at its last good value.
* Therefore, with data in flight (tcpi_unacked > 0), at least as long as the oldest of it has waited. The kernel does
  not say how long that is, but bounds it. From below: the time since the last transmission (tcpi_last_data_sent) and
  the timeouts sat out before it: those that doubled n = tcpi_backoff times to tcpi_rto are tcpi_rto (1 - 2^-n) long
  together, those that did not (net.ipv4.tcp_thin_linear_timeouts) tcpi_rto 2^-n each.
  From above: the time since the last acknowledgement (tcpi_last_ack_recv). Once the retransmission timer has fired
  (tcpi_retransmits > 0) the upper bound is taken, but no more than one first timeout above the lower: a connection that
  was silent for a minute and then lost one packet has not waited a minute.
* A client that went away while nothing was in flight keeps its last estimate: nothing says otherwise.

Layouts: linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h, linux/tcp.h.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST, NLM_F_DUMP = 0x1, 0x300
INET_DIAG_INFO = 2
INET_DIAG_REQ_BYTECODE = 1
BYTECODE_JUMP, BYTECODE_PEER = 1, 8
ESTABLISHED, CLOSE_WAIT = 1, 8
"""The states in which a server can still speak: the second is a client that shut down its own direction."""

FILTER_PEERS = 1000
"""More peers than this are picked out here: the kernel tries a filter's conditions one by one on every connection.
Among 8,000 connections both cost the same at about so many. The filter's length is a 16-bit number."""
TIMEOUT_S = 1.0
DATAGRAM_BYTES = 1 << 16
"""Twice what the kernel puts into one datagram of a dump."""

_message = struct.Struct("=IHHII")
_attribute = struct.Struct("=HH")
_errno = struct.Struct("=i")
_endpoints = struct.Struct("!HH16s16s")
_SOCKET_BYTES = 72

Endpoint = tuple[bytes, int]
"""An address in 16 bytes, IPv4 in its v4-mapped form, and a port."""


class TcpInfo(NamedTuple):
    """What is used of struct tcp_info."""

    retransmits: int
    backoff: int
    rto_us: int
    unacked: int
    last_data_sent_ms: int
    last_ack_recv_ms: int
    rtt_us: int


class Connection(NamedTuple):
    """One connection as the kernel reports it; `info` is None where the kernel gave none, or too short a one."""

    state: int
    local: Endpoint
    peer: Endpoint
    info: TcpInfo | None


_info = struct.Struct("=2xBxB3xI12xI16xI8xI8xI")
"""struct tcp_info as far as tcpi_rtt (72 bytes): newer kernels only ever add to its end."""


def endpoint(peer: str) -> Endpoint | None:
    """Read "192.0.2.7:443", "[2001:db8::7]:443" or "2001:db8::7:443" (a zone is dropped); None if it is none."""
    host, _, port = peer.rpartition(":")
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
        number = int(port)
    except ValueError:
        return None
    if not 0 < number < 65536:
        return None
    return _mapped(address.packed), number


def _mapped(packed: bytes) -> bytes:
    return packed if len(packed) == 16 else bytes(10) + b"\xff\xff" + packed


def request(family: int, peers: Iterable[Endpoint] = ()) -> bytes:
    """Build a dump request for the speaking connections of a family, to `peers` only if any are given."""
    states = 1 << ESTABLISHED | 1 << CLOSE_WAIT
    anything = bytes(48)
    body = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 1 << INET_DIAG_INFO - 1, states) + anything
    code = _bytecode(list(peers))
    if code:
        body += _attribute.pack(_attribute.size + len(code), INET_DIAG_REQ_BYTECODE) + code
    size = _message.size + len(body)
    return _message.pack(size, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 0, 0) + body


def _bytecode(peers: list[Endpoint]) -> bytes:
    """Encode "the peer is one of these" as a filter: for each peer a test, and where it holds a jump to the end.

    A jump to just behind the program accepts, one four bytes further refuses. An IPv4 test also holds for the same
    address in its v4-mapped form.
    """
    tests = []
    for address, port in peers:
        v4 = address.startswith(_mapped(bytes(4))[:12])
        family, packed = (socket.AF_INET, address[12:]) if v4 else (socket.AF_INET6, address)
        tests.append(struct.pack("=BBxxi", family, len(packed) * 8, port) + packed)
    code = b""
    left = sum(len(test) + 8 for test in tests)
    for test in tests:
        step = len(test) + 4
        refused = step + 4 if left > step + 4 else left + 4
        code += struct.pack("=BBH", BYTECODE_PEER, step, refused) + test
        code += struct.pack("=BBH", BYTECODE_JUMP, 4, left - step)
        left -= step + 4
    return code


def parse(datagram: bytes) -> list[Connection]:
    """Return the connections in a datagram of a dump; cut or foreign messages are left out. Never raises on content."""
    found = []
    for kind, payload in _messages(datagram):
        if kind != SOCK_DIAG_BY_FAMILY or len(payload) < _SOCKET_BYTES:
            continue
        family, state = payload[0], payload[1]
        local_port, peer_port, local, peer = _endpoints.unpack_from(payload, 4)
        if family == socket.AF_INET:
            local, peer = _mapped(local[:4]), _mapped(peer[:4])
        elif family != socket.AF_INET6:
            continue
        found.append(Connection(state, (local, local_port), (peer, peer_port), _tcp_info(payload)))
    return found


def outcome(datagram: bytes) -> int | None:
    """Return how a dump ended if it ended in this datagram: 0, or the errno of what the kernel refused."""
    for kind, payload in _messages(datagram):
        if kind in (NLMSG_DONE, NLMSG_ERROR):
            return -_errno.unpack_from(payload)[0] if len(payload) >= _errno.size else 0
    return None


def _messages(datagram: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _message.size <= len(datagram):
        size, kind, _, _, _ = _message.unpack_from(datagram, at)
        if size < _message.size or at + size > len(datagram):
            return
        yield kind, datagram[at + _message.size : at + size]
        at += (size + 3) & ~3


def _tcp_info(payload: bytes) -> TcpInfo | None:
    at = _SOCKET_BYTES
    while at + _attribute.size <= len(payload):
        size, kind = _attribute.unpack_from(payload, at)
        if size < _attribute.size or at + size > len(payload):
            return None
        if kind == INET_DIAG_INFO:
            whole = size - _attribute.size >= _info.size
            return TcpInfo._make(_info.unpack_from(payload, at + _attribute.size)) if whole else None
        at += (size + 3) & ~3
    return None


def latency_ms(info: TcpInfo) -> float | None:
    """Return the round-trip time by the rule at the top of this file; None before the first measurement."""
    smoothed = info.rtt_us / 1000.0
    if not info.unacked:
        return smoothed or None
    timeout = info.rto_us / 1000.0
    first_timeout = timeout / 2**info.backoff
    undoubled = max(0, info.retransmits - info.backoff)
    waited = info.last_data_sent_ms + timeout - first_timeout + undoubled * first_timeout
    if info.retransmits:
        waited = max(waited, min(info.last_ack_recv_ms, waited + first_timeout))
    return max(smoothed, waited) if smoothed or info.retransmits else None


def open_diag() -> socket.socket:
    """Open the netlink socket that questions go through. Raises OSError where this family is forbidden."""
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG)


class TcpTable:
    """The round-trip times of connections, one question per address family and call.

    `up` is None before the first question, then whether the last one was answered; if not, `error` says why in one
    line, until there is nothing to ask, and every connection is absent. A connection that is gone keeps its last smoothed
    estimate for as long as it is asked for: a chat client's answer stands after its request is over.
    """

    def __init__(self, open_socket: Callable[[], socket.socket] = open_diag) -> None:
        self._open_socket = open_socket
        self.up: bool | None = None
        self.error: str | None = None
        self._known: dict[Endpoint, float] = {}

    def rtt_ms(self, peers: Iterable[str]) -> dict[str, float]:
        """Return the round-trip time to each peer ("ip:port") that has, or had, a connection, in milliseconds.

        Two connections to one peer count as the worse of the two. Never raises: see `up` and `error`.
        """
        wanted = {peer: where for peer in peers if (where := endpoint(peer)) is not None}
        if not wanted:
            self.error = None
            return {}
        asked = set(wanted.values())
        found: dict[Endpoint, float] = {}
        smoothed: dict[Endpoint, float] = {}
        try:
            for connection in self._dump(asked):
                rtt = latency_ms(connection.info) if connection.info is not None else None
                if connection.info is not None and rtt is not None:
                    peer = connection.peer
                    found[peer] = max(rtt, found.get(peer, 0.0))
                    if connection.info.rtt_us:
                        smoothed[peer] = max(connection.info.rtt_us / 1000.0, smoothed.get(peer, 0.0))
        except OSError as error:
            self.up, self.error = False, f"INET_DIAG over AF_NETLINK: {error.strerror or error}"
            return {}
        self.up, self.error = True, None
        self._known = {where: rtt for where, rtt in self._known.items() if where in asked} | smoothed
        found = self._known | found
        return {peer: found[where] for peer, where in wanted.items() if where in found}

    def _dump(self, peers: set[Endpoint]) -> Iterator[Connection]:
        narrowed = sorted(peers) if len(peers) <= FILTER_PEERS else []
        with self._open_socket() as diag:
            diag.settimeout(TIMEOUT_S)
            # A server that listens on both families shows its IPv4 clients among IPv6 connections.
            for family in (socket.AF_INET, socket.AF_INET6):
                diag.sendall(request(family, narrowed))
                ended = None
                while ended is None:
                    datagram = diag.recv(DATAGRAM_BYTES)
                    yield from (connection for connection in parse(datagram) if connection.peer in peers)
                    ended = outcome(datagram)
                if ended:
                    raise OSError(ended, os.strerror(ended))

    def collect(self) -> Iterable[Metric]:
        """Say whether the kernel answers; nothing before the first question. Raises OSError where it does not."""
        if self.up is not None:
            yield GaugeMetricFamily(
                "omniwatch_tcp_up",
                "Whether the kernel answers questions about TCP connections (INET_DIAG). 0: the server's estimate of "
                "omni_token_rtt_ms lacks the network's share.",
                value=float(self.up),
            )
        if self.error is not None:
            raise OSError(self.error)
