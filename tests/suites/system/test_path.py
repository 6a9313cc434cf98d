"""The kernel's round-trip time over a link that delays and loses packets (tests/helpers/delay_link.py; needs CAP_NET_ADMIN)."""

from __future__ import annotations

import socket

import pytest

from helpers.connections import connected, exchange
from helpers.delay_link import DelayLink
from helpers.relay import RESET_ON_CLOSE
from helpers.waiting import wait_until
from omniwatch.host.tcp import TcpTable


@pytest.mark.parametrize("ipv6", [False, True])
def test_a_hundred_milliseconds_more_are_a_hundred_milliseconds_more(ipv6: bool) -> None:
    with (
        DelayLink(delay_ms=50.0, ipv6=ipv6) as link,
        connected(link.there, link.here) as (client, served, peer),
    ):

        def is_as_long() -> bool:
            exchange(client, served)
            return TcpTable().rtt_ms([peer])[peer] == pytest.approx(100.0, rel=0.1)

        wait_until(is_as_long)


def test_an_outage_is_not_a_good_round_trip_time() -> None:
    with DelayLink(delay_ms=10.0) as link, connected(link.there, link.here) as (client, served, peer):
        table = TcpTable()
        link.set(down=True)
        served.sendall(b"speech")
        wait_until(lambda: table.rtt_ms([peer])[peer] > 1_500.0, what="the outage shows")
        link.set(down=False)
        wait_until(lambda: client.recv(100), what="the speech arrives after all")
        wait_until(lambda: table.rtt_ms([peer])[peer] < 200.0, what="the outage is over")


def test_an_outage_of_one_direction_is_no_good_round_trip_time_either() -> None:
    with DelayLink(delay_ms=10.0) as link, connected(link.there, link.here) as (client, served, peer):
        link.set(down=served.getsockname()[1])
        served.sendall(b"speech")

        def waited_ms() -> float:
            client.send(b"a picture")
            return TcpTable().rtt_ms([peer])[peer]

        wait_until(lambda: waited_ms() > 1_500.0)


def test_an_outage_that_ended_with_the_connection_does_not_stay() -> None:
    table = TcpTable()
    with DelayLink(delay_ms=10.0) as link, connected(link.there, link.here) as (client, served, peer):
        link.set(down=True)
        served.sendall(b"speech")
        wait_until(lambda: table.rtt_ms([peer])[peer] > 700.0)
        for end in (client, served):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            end.close()
        wait_until(lambda: table.rtt_ms([peer])[peer] < 200.0)
