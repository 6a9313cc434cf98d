"""Ask the kernel about one TCP connection (INET_DIAG): a question's bytes, and what the answer says. Pure.

A question names both ends, and the socket's cookie once that is known: a port used anew is another socket. It costs
microseconds and needs no privilege, where a dump would walk the kernel's whole table.

Layouts: linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h, linux/tcp.h.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct
from collections.abc import Callable
from typing import NamedTuple

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLMSG_ERROR = 2
NLM_F_REQUEST = 0x1
INET_DIAG_INFO, INET_DIAG_CONG, INET_DIAG_SKMEMINFO = 2, 4, 7
FIN_WAIT2, TIME_WAIT, CLOSE, LISTEN = 5, 6, 7, 10
ANY_COOKIE = b"\xff" * 8
UNMEASURED_US = 0xFFFFFFFF
"""`tcpi_min_rtt` before the first measurement."""
LEAST_INFO_BYTES = 128
"""struct tcp_info up to tcpi_bytes_acked: Linux 4.1."""
WHOLE_INFO_BYTES = 232
"""struct tcp_info up to tcpi_snd_wnd: Linux 5.4. Newer kernels add to the end."""
_BYTES_RETRANS_END = 216
CONTROL_BYTES = 2
"""The beginning and the end of a connection (SYN, FIN), which are acknowledged as a byte each."""
DATAGRAM_BYTES = 8192

_message = struct.Struct("=IHHII")
_attribute = struct.Struct("=HH")
_errno = struct.Struct("=i")
_question = struct.Struct("=BBBxI36sI8s")
_socket = struct.Struct("=BB2x36s4x8s8xI8x")
_memory = struct.Struct("=12xI4xI")
_info = struct.Struct("=2xB25xI24xI8xI28xI16xQ16xII24xQ16xQQI12x")
_WANTED = sum(1 << kind - 1 for kind in (INET_DIAG_INFO, INET_DIAG_CONG, INET_DIAG_SKMEMINFO))
_LOOPBACK = bytes(15) + b"\1"
_MAPPED = bytes(10) + b"\xff\xff"


class Ends(NamedTuple):
    """Both ends of a connection, as questions and answers name them."""

    family: int
    packed: bytes
    """Local port, peer's port, local address, peer's address: 36 bytes, network order."""
    interface: int
    """Index of a link-local address's interface; else 0."""

    @property
    def peer(self) -> bytes:
        """The peer's address."""
        return self.packed[20:]

    @property
    def is_within_host(self) -> bool:
        """Whether both ends are of this machine."""
        is_loopback = self.peer[:1] == b"\x7f" if self.family == socket.AF_INET else self.peer == _LOOPBACK
        return is_loopback or self.peer == self.packed[4:20]


class TcpInfo(NamedTuple):
    """What is used of struct tcp_info. A field that the kernel lacks is 0."""

    retransmits: int
    sacked: int
    """Segments that the client has, behind others that it has not."""
    last_ack_recv_ms: int
    rtt_us: int
    total_retrans: int
    bytes_acked: int
    notsent_bytes: int
    min_rtt_us: int
    rwnd_limited_us: int
    bytes_sent: int
    bytes_retrans: int
    dsack_dups: int


class SocketReport(NamedTuple):
    """What the kernel says of a connection."""

    state: int
    cookie: bytes
    queued: int
    """Bytes that the client has not acknowledged (idiag_wqueue)."""
    has_room: bool
    """Whether the socket can be written to, so that nothing waits in front of it."""
    info: TcpInfo | None
    """None where the socket is only remembered (TIME_WAIT)."""
    info_bytes: int
    """How much of struct tcp_info the kernel gave."""
    congestion: str = ""
    """Name of the congestion control; "" where the socket is only remembered."""

    @property
    def surplus(self) -> int:
        """What was acknowledged and what waits, less what was sent once and what was not yet; 0 on a kernel that does not say.

        It does not change, and is nearly always 0, unless the
        figures were read at different moments.
        """
        info = self.info
        if info is None or self.info_bytes < _BYTES_RETRANS_END:
            return 0
        return info.bytes_acked + self.queued - (info.bytes_sent - info.bytes_retrans + info.notsent_bytes)

    @property
    def is_possible(self) -> bool:
        """Whether no more was acknowledged than was ever sent."""
        info = self.info
        if info is None or self.info_bytes < _BYTES_RETRANS_END:
            return True
        return info.bytes_acked <= info.bytes_sent + CONTROL_BYTES


class Gone(NamedTuple):
    """There is no such connection any more."""


class Fault(NamedTuple):
    """No answer to the question; `why` is for the log."""

    why: str


def ends(
    local: tuple[str, int],
    peer: tuple[str, int],
    index_of: Callable[[str], int] = socket.if_nametoindex,
) -> Ends | None:
    """Name a connection by its ends, IPv4 also where it is v4-mapped; None where one of them is no address and port.

    `index_of` returns the index of an interface, or raises OSError.
    """
    interface = 0
    packed = []
    for host, port in (local, peer):
        address, _, zone = host.partition("%")
        try:
            known = ipaddress.ip_address(address)
            if zone:
                interface = int(zone) if zone.isdigit() else index_of(zone)
        except (ValueError, OSError):
            return None
        if not 0 < port < 65536:
            return None
        packed.append((port.to_bytes(2, "big"), _unmapped(known.packed)))
    (local_port, local_address), (peer_port, peer_address) = packed
    if len(local_address) != len(peer_address):
        return None
    family = socket.AF_INET if len(peer_address) == 4 else socket.AF_INET6
    addresses = local_address.ljust(16, b"\0") + peer_address.ljust(16, b"\0")
    return Ends(family, local_port + peer_port + addresses, interface)


def _unmapped(packed: bytes) -> bytes:
    return packed[12:] if packed.startswith(_MAPPED) else packed


def question(of: Ends, cookie: bytes, number: int) -> bytes:
    """Build the question about a connection. Its answer comes under the same number."""
    body = _question.pack(of.family, socket.IPPROTO_TCP, _WANTED, 0, of.packed, of.interface, cookie)
    return _message.pack(_message.size + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, number, 0) + body


def number_of(datagram: bytes) -> int | None:
    """Return the number under which an answer comes; None where it is too short to have one."""
    return int(_message.unpack_from(datagram)[3]) if len(datagram) >= _message.size else None


def answer(datagram: bytes, to: Ends, cookie: bytes = ANY_COOKIE) -> SocketReport | Gone | Fault:
    """Read the answer to the question about a connection. Never raises on content."""
    if len(datagram) < _message.size:
        return Fault("a cut answer")
    size, kind, _, _, _ = _message.unpack_from(datagram)
    if not _message.size <= size <= len(datagram):
        return Fault("a cut answer")
    if kind == NLMSG_ERROR:
        return _refusal(datagram)
    if kind != SOCK_DIAG_BY_FAMILY or size < _message.size + _socket.size:
        return Fault("an answer of another kind")
    family, state, about, its_cookie, queued = _socket.unpack_from(datagram, _message.size)
    if about != to.packed and _same_form(family, about) != _same_form(to.family, to.packed):
        # A listener answers for a connection that is gone.
        return Gone() if state == LISTEN else Fault("an answer about another connection")
    if cookie not in (ANY_COOKIE, its_cookie):
        return Fault("an answer about another socket")
    if state == CLOSE:
        return Gone()
    return _answer(datagram[:size], state, its_cookie, queued)


def _answer(datagram: bytes, state: int, cookie: bytes, queued: int) -> SocketReport | Fault:
    info, info_bytes, has_room, congestion = None, 0, queued == 0, ""
    at = _message.size + _socket.size
    while at + _attribute.size <= len(datagram):
        size, kind = _attribute.unpack_from(datagram, at)
        begin = at + _attribute.size
        if size < _attribute.size or at + size > len(datagram):
            return Fault("a cut answer")
        if kind == INET_DIAG_INFO:
            info_bytes = size - _attribute.size
            if info_bytes < LEAST_INFO_BYTES:
                return Fault("a kernel before Linux 4.1")
            if info_bytes >= WHOLE_INFO_BYTES:
                info = TcpInfo._make(_info.unpack_from(datagram, begin))
            else:
                given = datagram[begin : begin + info_bytes]
                info = TcpInfo._make(_info.unpack(given.ljust(WHOLE_INFO_BYTES, b"\0")))
        elif kind == INET_DIAG_CONG:
            congestion = datagram[begin : at + size].partition(b"\0")[0].decode("ascii", "replace")
        elif kind == INET_DIAG_SKMEMINFO and size >= _attribute.size + _memory.size:
            limit, held = _memory.unpack_from(datagram, begin)
            has_room = limit - held >= held // 2
        at += (size + 3) & ~3
    if info is None and state not in (TIME_WAIT, FIN_WAIT2):
        return Fault("an answer without tcp_info")
    return SocketReport(state, cookie, queued, has_room, info, info_bytes, congestion)


def _refusal(datagram: bytes) -> Gone | Fault:
    if len(datagram) < _message.size + _errno.size:
        return Fault("a cut answer")
    number = -_errno.unpack_from(datagram, _message.size)[0]
    if number in (errno.ENOENT, errno.ESTALE):
        return Gone()
    return Fault(errno.errorcode.get(number, f"error {number}"))


def _same_form(family: int, packed: bytes) -> bytes:
    """Return both ends in one form, whether the kernel names an IPv4 connection as such or as v4-mapped."""
    if family == socket.AF_INET:
        return packed[:4] + packed[4:8] + packed[20:24]
    local, peer = _unmapped(packed[4:20]), _unmapped(packed[20:36])
    return packed[:4] + local + peer
