"""Round-trip times from the kernel, of real connections."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import subprocess
import sys

import pytest

from helpers.connections import accept, connected, kernel_rtt_ms
from helpers.host_readers import scraped
from helpers.relay import Relay
from helpers.waiting import wait_until
from omniwatch.host import tcp
from omniwatch.host.tcp import TcpTable


@pytest.mark.parametrize(
    ("address", "bound"), [("127.0.0.1", None), ("::1", None), ("127.0.0.1", "::"), ("::1", "::")]
)
def test_real_connections_of_each_family_are_found(address: str, bound: str | None) -> None:
    with connected(address, bound) as (_, served, peer):
        wait_until(lambda: TcpTable().rtt_ms([peer]) == {peer: kernel_rtt_ms(served)}, what=peer)
        assert kernel_rtt_ms(served) > 0
        host, _, port = peer.rpartition(":")
        assert TcpTable().rtt_ms([f"[{host}]:{port}"]).keys() == {f"[{host}]:{port}"}


def test_a_v4_mapped_client_is_found_by_either_name() -> None:
    with connected("127.0.0.1", "::") as (_, _, peer):
        plain = peer.removeprefix("::ffff:")
        assert plain != peer
        assert TcpTable().rtt_ms([plain, peer]).keys() == {plain, peer}


@pytest.mark.parametrize("limit", [0, tcp.FILTER_PEERS])
def test_many_peers_are_told_apart_with_and_without_the_kernels_filter(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcp, "FILTER_PEERS", limit)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        held = [accept(server, "127.0.0.1") for _ in range(30)]
        for client, served, _ in held:
            stack.enter_context(client)
            stack.enter_context(served)
        wanted = {peer: served for _, served, peer in held[::3]}
        absent = ["192.0.2.1:1", "[2001:db8::1]:1"]
        expected = {peer: kernel_rtt_ms(served) for peer, served in wanted.items()}
        assert TcpTable().rtt_ms([*wanted, *absent]) == expected


@pytest.mark.parametrize("count", [tcp.FILTER_PEERS - 1, tcp.FILTER_PEERS])
def test_as_many_peers_as_there_can_be_are_asked_for(count: int) -> None:
    with connected("::1") as (_, served, peer):
        table = TcpTable()
        others = [f"[2001:db8::{number:x}]:443" for number in range(count)]
        assert table.rtt_ms([*others, peer]) == {peer: kernel_rtt_ms(served)}
        assert table.error is None


def test_the_kernel_sends_only_the_wanted_connections() -> None:
    with connected("127.0.0.1") as (_, _, peer), connected("127.0.0.1"), tcp.open_diag() as diag:
        where = tcp.endpoint(peer)
        assert where is not None
        diag.sendall(tcp.request(socket.AF_INET, [where]))
        assert [connection.peer for connection in tcp.parse(diag.recv(1 << 16))] == [where]


def test_a_closed_connection_is_absent() -> None:
    with connected("127.0.0.1") as (client, served, peer):
        assert TcpTable().rtt_ms([peer])
        served.close()
        client.close()
        wait_until(lambda: not TcpTable().rtt_ms([peer]))


def test_a_closed_connection_keeps_its_estimate_while_it_is_asked_for() -> None:
    table = TcpTable()
    with connected("127.0.0.1") as (_, _, peer):
        last = wait_until(lambda: table.rtt_ms([peer]))
    wait_until(lambda: not TcpTable().rtt_ms([peer]))
    assert table.rtt_ms([peer]) == last
    assert table.rtt_ms(["192.0.2.1:1"]) == {}
    assert table.rtt_ms([peer]) == {}


def test_it_needs_no_privileges() -> None:
    script = """
import os, socket, sys
from omniwatch.host.tcp import TcpTable
if os.getuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
table = TcpTable()
sys.exit(0 if table.rtt_ms(sys.argv[1:]) and os.getuid() != 0 else f"{table.up} {table.error}")
"""
    with connected("127.0.0.1") as (_, _, peer):
        run = subprocess.run(
            [sys.executable, "-c", script, peer], capture_output=True, text=True, check=False
        )
    assert (run.returncode, run.stderr) == (0, "")


def test_without_a_netlink_socket_connections_are_absent_and_it_says_why() -> None:
    refusals = [OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))]

    def sometimes() -> socket.socket:
        if refusals:
            raise refusals.pop()
        return tcp.open_diag()

    table = TcpTable(sometimes)
    assert list(table.collect()) == []
    with connected("127.0.0.1") as (_, _, peer):
        assert table.rtt_ms([peer]) == {}
        assert (table.up, table.error) == (
            False,
            "INET_DIAG over AF_NETLINK: Address family not supported by protocol",
        )
        assert scraped(table, "tcp") == {"omniwatch_tcp_up": 0, "omniwatch_host_reader_up tcp": 0}
        assert table.rtt_ms([peer]).keys() == {peer}
        assert (table.up, table.error) == (True, None)
        assert scraped(table, "tcp") == {"omniwatch_tcp_up": 1, "omniwatch_host_reader_up tcp": 1}
        refusals.append(OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS)))
        assert table.rtt_ms([peer]) == {}
        assert table.rtt_ms([]) == {}
        assert scraped(table, "tcp") == {"omniwatch_tcp_up": 0, "omniwatch_host_reader_up tcp": 1}, (
            "nothing to ask"
        )


def test_a_process_out_of_files_does_not_raise() -> None:
    with connected("127.0.0.1") as (_, _, peer):
        table = TcpTable()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        try:
            assert table.rtt_ms([peer]) == {}
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert table.error == "INET_DIAG over AF_NETLINK: Too many open files"


def test_what_the_kernel_refuses_is_its_errno() -> None:
    with tcp.open_diag() as diag:
        diag.sendall(tcp.request(socket.AF_UNSPEC))
        assert tcp.outcome(diag.recv(1 << 16)) == errno.ENOENT


def test_behind_a_proxy_the_kernel_knows_only_the_way_to_the_proxy() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        Relay(server.getsockname()[1], up_ms=30, down_ms=30) as relay,
    ):
        client = socket.create_connection(("127.0.0.1", relay.port), timeout=20)
        served, (host, port) = server.accept()
        with client, served:
            served.sendall(b"speech")
            assert client.recv(100) == b"speech"
            rtt = wait_until(lambda: TcpTable().rtt_ms([f"{host}:{port}"]))
            assert rtt[f"{host}:{port}"] < 30.0
            relay.cut()
            with pytest.raises(ConnectionResetError):
                client.recv(100)
