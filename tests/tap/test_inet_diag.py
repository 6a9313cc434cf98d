"""Questions about one connection, and answers as Linux 6.18 gave them (`tests/data/inet_diag.json`, loopback)."""

from __future__ import annotations

import errno
import json
import socket
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.paths import CLONE
from omniwatch.tap import inet_diag
from omniwatch.tap.inet_diag import ANY_COOKIE, Ends, Fault, Gone, SocketReport, answer, ends, question

RECORDED: dict[str, Any] = json.loads((CLONE / "tests" / "data" / "inet_diag.json").read_text())


def recorded_ends(family: str) -> Ends:
    local, peer = RECORDED[f"{family}-ends"]
    found = ends(tuple(local), tuple(peer))
    assert found is not None
    return found


def recorded(name: str) -> bytes:
    return bytes.fromhex(RECORDED[name]["answer"])


def read(name: str, cookie: bytes = ANY_COOKIE) -> SocketReport | Gone | Fault:
    return answer(recorded(name), recorded_ends(name[:2]), cookie)


def with_info_of(size: int) -> bytes:
    """The answer of a kernel whose struct tcp_info has so many bytes."""
    whole = recorded("v4-quiet")
    length, kind = struct.unpack_from("=HH", whole, inet_diag_info_at(whole))
    assert (length - 4, kind) == (280, inet_diag.INET_DIAG_INFO)
    at = inet_diag_info_at(whole)
    cut = whole[:at] + struct.pack("=HH", size + 4, kind) + whole[at + 4 : at + 4 + size]
    return struct.pack("=I", len(cut)) + cut[4:]


def inet_diag_info_at(datagram: bytes) -> int:
    at = 16 + 72
    while struct.unpack_from("=HH", datagram, at)[1] != inet_diag.INET_DIAG_INFO:
        at += (struct.unpack_from("=H", datagram, at)[0] + 3) & ~3
    return at


@pytest.mark.parametrize("name", ["c4-bbr", "c6-cubic"])
def test_a_question_names_both_ends_and_what_is_wanted(name):
    asked = bytes.fromhex(RECORDED[name]["question"])
    assert question(recorded_ends(name[:2]), ANY_COOKIE, 7) == asked
    assert inet_diag.number_of(asked) == inet_diag.number_of(recorded(name)) == 7


@pytest.mark.parametrize("family", ["v4", "v6"])
def test_answers_of_the_kernel_are_read(family):
    quiet, full = read(f"{family}-quiet"), read(f"{family}-full")
    assert isinstance(quiet, SocketReport)
    assert isinstance(full, SocketReport)
    assert quiet.info is not None
    assert full.info is not None
    assert (quiet.info.bytes_acked, quiet.queued, quiet.has_room, quiet.info_bytes) == (900, 0, True, 280)
    assert 0 < quiet.info.min_rtt_us <= quiet.info.rtt_us < 1000
    assert full.info.bytes_acked + full.queued == 900 + 2_809_856
    assert not full.has_room
    assert full.info.rwnd_limited_us > 0
    assert quiet.surplus == full.surplus == 0
    assert quiet.is_possible


@pytest.mark.parametrize(
    ("name", "congestion"), [("c4-bbr", "bbr"), ("c6-cubic", "cubic"), ("v4-quiet", ""), ("v4-time-wait", "")]
)
def test_the_congestion_control_is_read(name, congestion):
    """Of v4 and v6 nothing but figures was asked."""
    found = read(name)
    assert isinstance(found, SocketReport)
    assert found.congestion == congestion
    assert found.info is None or found.info.bytes_acked == 900


def test_a_connection_that_ended_has_everything():
    closing, over = read("v4-fin-wait"), read("v4-time-wait")
    assert isinstance(closing, SocketReport)
    assert (closing.state, closing.queued) == (inet_diag.FIN_WAIT2, 0)
    assert closing.info is not None
    assert closing.info.dsack_dups == closing.info.total_retrans == 16
    assert closing.surplus == 1, "its end was acknowledged"
    assert closing.is_possible
    assert isinstance(over, SocketReport)
    assert (over.state, over.info) == (inet_diag.TIME_WAIT, None)
    assert over.cookie == closing.cookie


def test_what_is_gone_is_told_from_what_is_not_answered():
    assert read("v4-other-socket") == Gone()
    assert answer(recorded("gone"), recorded_ends("v4")) == Gone()
    assert answer(recorded("listener"), recorded_ends("v4")) == Gone()
    refused = struct.pack("=IHHIIi", 20, inet_diag.NLMSG_ERROR, 0, 7, 0, -errno.EPERM)
    assert answer(refused, recorded_ends("v4")) == Fault("EPERM")
    assert isinstance(answer(refused[:18], recorded_ends("v4")), Fault)


def test_an_answer_about_another_connection_or_socket_is_none():
    assert isinstance(answer(recorded("v6-quiet"), recorded_ends("v4")), Fault)
    first = read("v4-quiet")
    assert isinstance(first, SocketReport)
    assert read("v4-quiet", first.cookie) == first
    assert isinstance(read("v4-quiet", b"other..."), Fault)


@pytest.mark.parametrize(
    ("size", "measured"), [(280, True), (232, True), (192, True), (128, False), (127, None)]
)
def test_kernels_with_less_to_say_are_read_as_far_as_they_go(size, measured):
    found = answer(with_info_of(size), recorded_ends("v4"))
    if measured is None:
        assert found == Fault("a kernel before Linux 4.1")
        return
    assert isinstance(found, SocketReport)
    assert found.info is not None
    assert found.info.bytes_acked == 900
    assert (found.info.min_rtt_us > 0) is measured
    assert found.surplus == 0
    assert found.is_possible


def test_counts_that_cannot_be_are_seen():
    found = read("v4-quiet")
    assert isinstance(found, SocketReport)
    assert found.info is not None
    assert found._replace(queued=100).surplus == 100
    assert not found._replace(info=found.info._replace(bytes_acked=903)).is_possible


@given(name=st.sampled_from(["c4-bbr", "v6-full", "v4-time-wait", "gone"]), data=st.data())
def test_no_bytes_make_it_raise(name, data):
    whole = bytearray(recorded(name))
    for _ in range(data.draw(st.integers(0, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    assert isinstance(
        answer(cut, recorded_ends(name[:2] if name[0] == "c" else "v4")), (SocketReport, Gone, Fault)
    )


@pytest.mark.parametrize("size", range(0, 448, 7))
@pytest.mark.parametrize("name", ["v4-quiet", "c4-bbr"])
def test_a_cut_answer_is_none(name, size):
    assert isinstance(answer(recorded(name)[:size], recorded_ends(name[:2])), Fault)


@pytest.mark.parametrize("name", [b"", b"\0bbr", b"\xff\xfe", b"not ended"])
def test_a_name_that_is_none_is_read_as_far_as_it_goes(name):
    head, _, tail = recorded("c4-bbr").partition(struct.pack("=HH", 8, inet_diag.INET_DIAG_CONG) + b"bbr\0")
    odd = struct.pack("=HH", 4 + len(name), inet_diag.INET_DIAG_CONG) + name.ljust(
        -(-len(name) // 4) * 4, b"\0"
    )
    whole = struct.pack("=I", len(head + odd + tail)) + (head + odd + tail)[4:]
    found = answer(whole, recorded_ends("c4"))
    assert isinstance(found, SocketReport)
    assert found.congestion == name.partition(b"\0")[0].decode("ascii", "replace")
    assert found.info is not None


def test_both_names_of_an_ipv4_connection_are_one():
    plain = ends(("192.0.2.1", 80), ("192.0.2.7", 4000))
    assert plain == ends(("::ffff:192.0.2.1", 80), ("::ffff:192.0.2.7", 4000))
    assert plain is not None
    assert plain.family == socket.AF_INET
    assert plain.peer.startswith(bytes([192, 0, 2, 7]))


def test_a_link_local_address_has_its_interface():
    def index_of(name: str) -> int:
        if name != "wlan0":
            raise OSError
        return 3

    for zone in ("wlan0", "3"):
        found = ends((f"fe80::1%{zone}", 80), ("fe80::2", 4000), index_of)
        assert found is not None
        assert found.interface == 3
    assert ends(("fe80::1%eth9", 80), ("fe80::2", 4000), index_of) is None


@pytest.mark.parametrize(
    ("local", "peer"),
    [
        (("192.0.2.1", 80), ("192.0.2.7", 0)),
        (("192.0.2.1", 80), ("192.0.2.7", 65536)),
        (("192.0.2.1", 80), ("a.example", 4000)),
        (("192.0.2.1", 80), ("2001:db8::7", 4000)),
        (("/run/server.sock", 80), ("192.0.2.7", 4000)),
    ],
)
def test_what_is_no_address_and_port_is_not_asked_about(local, peer):
    assert ends(local, peer) is None


@pytest.mark.parametrize(
    ("local", "peer", "within"),
    [
        ("127.0.0.1", "127.0.0.9", True),
        ("::1", "::1", True),
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.7", False),
        ("2001:db8::1", "2001:db8::7", False),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", True),
    ],
)
def test_a_peer_of_this_machine_is_known(local, peer, within):
    found = ends((local, 80), (peer, 4000))
    assert found is not None
    assert found.is_within_host is within
