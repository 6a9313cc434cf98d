"""The kernel's messages about connections, and the rule that no outage is a good round-trip time."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniwatch.host import tcp
from omniwatch.host.tcp import TcpInfo, TcpTable

WHOLE_TCP_INFO = 280
"""The size of struct tcp_info in Linux 6.18."""
CALM = TcpInfo(
    retransmits=0,
    backoff=0,
    rto_us=300_000,
    unacked=0,
    last_data_sent_ms=5_000,
    last_ack_recv_ms=4_900,
    rtt_us=100_000,
)


def tcp_info(size: int = WHOLE_TCP_INFO) -> bytes:
    """A struct tcp_info whose every byte tells where it stands, but for the fields asked for."""
    raw = bytearray(at % 251 for at in range(WHOLE_TCP_INFO))
    raw[2], raw[4] = 3, 2
    for at, value in ((8, 1_200_000), (24, 7), (44, 11), (56, 12_000), (68, 123_456)):
        struct.pack_into("=I", raw, at, value)
    return bytes(raw[:size])


def attribute(kind: int, content: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)


def message(attributes: bytes, family: int = socket.AF_INET, kind: int = tcp.SOCK_DIAG_BY_FAMILY) -> bytes:
    addresses = (socket.inet_aton("192.0.2.1"), socket.inet_aton("198.51.100.7"))
    if family == socket.AF_INET6:
        addresses = tuple(socket.inet_pton(family, text) for text in ("2001:db8::1", "2001:db8::7"))
    local, peer = (address.ljust(16, b"\0") for address in addresses)
    body = struct.pack("=BBBB", family, tcp.ESTABLISHED, 0, 0) + struct.pack("!HH", 8091, 40_000)
    body += local + peer + struct.pack("=IQ", 0, 77) + bytes(20) + attributes
    return struct.pack("=IHHII", 16 + len(body), kind, 2, 0, 0) + body


DONE = struct.pack("=IHHIIi", 20, tcp.NLMSG_DONE, 2, 0, 0, 0)


def test_a_datagram_of_several_messages_is_parsed() -> None:
    noise = attribute(8, b"\0") + attribute(5, b"\0\0")
    datagram = (
        message(noise + attribute(tcp.INET_DIAG_INFO, tcp_info()))
        + message(attribute(tcp.INET_DIAG_INFO, tcp_info()), socket.AF_INET6)
        + message(b"", kind=3000)
        + DONE
    )
    first, second = tcp.parse(datagram)
    assert first.local == tcp.endpoint("192.0.2.1:8091")
    assert first.peer == tcp.endpoint("198.51.100.7:40000")
    assert second.peer == tcp.endpoint("[2001:db8::7]:40000")
    assert first.state == tcp.ESTABLISHED
    assert first.info == second.info == TcpInfo(3, 2, 1_200_000, 7, 11, 12_000, 123_456)
    assert tcp.outcome(datagram) == 0


@pytest.mark.parametrize("size", [72, 92, 104, 144, 192, 224, 232, WHOLE_TCP_INFO])
def test_every_size_of_tcp_info_that_holds_the_rtt_is_read(size: int) -> None:
    (connection,) = tcp.parse(message(attribute(tcp.INET_DIAG_INFO, tcp_info(size))))
    assert connection.info is not None
    assert connection.info.rtt_us == 123_456


@pytest.mark.parametrize(
    "attributes", [b"", attribute(tcp.INET_DIAG_INFO, tcp_info(71)), b"\x03\0\x02\0", b"\xff\0\x02\0"]
)
def test_a_connection_without_a_usable_tcp_info_has_none(attributes: bytes) -> None:
    (connection,) = tcp.parse(message(attributes))
    assert connection.info is None


@given(st.binary(max_size=400), st.integers(0, 400))
def test_no_content_makes_the_parser_raise(junk: bytes, cut: int) -> None:
    whole = message(attribute(tcp.INET_DIAG_INFO, tcp_info())) + DONE
    for datagram in (junk, whole[:cut], whole[:cut] + junk, whole[:16] + junk):
        assert len(tcp.parse(datagram)) <= 1 + len(datagram) // 72
        tcp.outcome(datagram)


@pytest.mark.parametrize(
    ("peer", "packed", "port"),
    [
        ("192.0.2.7:443", "::ffff:192.0.2.7", 443),
        ("::ffff:192.0.2.7:443", "::ffff:192.0.2.7", 443),
        ("[::ffff:192.0.2.7]:443", "::ffff:192.0.2.7", 443),
        ("2001:db8::7:443", "2001:db8::7", 443),
        ("[2001:db8::7]:65535", "2001:db8::7", 65535),
        ("[fe80::1%eth0]:9", "fe80::1", 9),
    ],
)
def test_a_peer_is_read_in_each_way_it_is_written(peer: str, packed: str, port: int) -> None:
    assert tcp.endpoint(peer) == (socket.inet_pton(socket.AF_INET6, packed), port)


@pytest.mark.parametrize(
    "peer",
    ["", ":", "unix:", "localhost:80", "192.0.2.7", "192.0.2.7:", "192.0.2.7:0", "::1:65536", "::1:-1"],
)
def test_what_is_no_peer_is_none(peer: str) -> None:
    assert tcp.endpoint(peer) is None
    assert TcpTable().rtt_ms([peer]) == {}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, 100.0),
        ({"rtt_us": 0}, None),
        # Data just sent after five seconds of silence: nothing is known yet that would make the estimate wrong.
        ({"unacked": 2, "last_data_sent_ms": 3}, 100.0),
        # Sent 250 ms ago and still not acknowledged: the round trip takes at least so long.
        ({"unacked": 2, "last_data_sent_ms": 250}, 250.0),
        # The timer fired once after 300 ms, twice after 900 ms; the last try was 40 ms ago.
        ({"unacked": 2, "retransmits": 1, "backoff": 1, "rto_us": 600_000, "last_data_sent_ms": 40, "last_ack_recv_ms": 350}, 350.0),
        ({"unacked": 2, "retransmits": 2, "backoff": 2, "rto_us": 1_200_000, "last_data_sent_ms": 40, "last_ack_recv_ms": 1_000}, 1_000.0),
        # … but silent for a minute before that: no more than a first timeout on top of what is certain.
        ({"unacked": 1, "retransmits": 2, "backoff": 2, "rto_us": 1_200_000, "last_data_sent_ms": 40, "last_ack_recv_ms": 60_000}, 1_240.0),
        # The client's own data keeps coming, so acknowledgements do; ours still waits.
        ({"unacked": 1, "retransmits": 2, "backoff": 2, "rto_us": 1_200_000, "last_data_sent_ms": 40, "last_ack_recv_ms": 5}, 940.0),
        # net.ipv4.tcp_thin_linear_timeouts: three timeouts, none doubled.
        ({"unacked": 1, "retransmits": 3, "last_data_sent_ms": 40, "last_ack_recv_ms": 900}, 940.0),
        # Never measured, and nothing comes back.
        ({"unacked": 1, "rtt_us": 0, "last_data_sent_ms": 400}, None),
        ({"unacked": 1, "rtt_us": 0, "retransmits": 1, "backoff": 1, "rto_us": 2_000_000, "last_data_sent_ms": 0, "last_ack_recv_ms": 1_000}, 1_000.0),
    ],
)  # fmt: skip
def test_data_that_waits_counts_as_at_least_its_wait(change: dict[str, int], expected: float | None) -> None:
    assert tcp.latency_ms(CALM._replace(**change)) == expected
