"""What asking the kernel for the round-trip times of 8 streams costs a scrape, among thousands of connections.

Against taking every connection and picking out the 8 here, and against `ss` printing those 8.

python tests/bench/tcp.py [CONNECTIONS]
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from omniwatch.host import tcp

STREAMS = 8
ROUNDS = 50
BOUND_MS = 10.0


def median_ms(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """How long the work takes."""
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        times.append((time.perf_counter() - begun) * 1000)
    return statistics.median(times)


def main(connections: int) -> int:
    """Print the table; 1 where the sidecar's way costs more than the bound."""
    print(
        f"{'connections':>11} {'sidecar ms':>11} {'take all ms':>12} {'ss ms':>8} {'all ratio':>10} {'ss ratio':>9}"
    )
    over = False
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1024))
        peers: list[str] = []
        for share in (10, 4, 1):
            while len(peers) < connections // share:
                client = stack.enter_context(socket.create_connection(server.getsockname()))
                served, (host, port) = server.accept()
                stack.enter_context(served)
                client.sendall(b"text")
                served.recv(100)
                served.sendall(b"speech")
                client.recv(100)
                peers.append(f"{host}:{port}")
            wanted = peers[:: len(peers) // STREAMS][:STREAMS]
            table = tcp.TcpTable()
            assert table.rtt_ms(wanted).keys() == set(wanted)
            ours = median_ms(lambda table=table, wanted=wanted: table.rtt_ms(wanted))
            narrow, tcp.FILTER_PEERS = tcp.FILTER_PEERS, 0
            everything = median_ms(lambda table=table, wanted=wanted: table.rtt_ms(wanted))
            tcp.FILTER_PEERS = narrow
            command = ["ss", "-tinH", " or ".join(f"dst {peer}" for peer in wanted)]
            printed = median_ms(
                lambda command=command: subprocess.run(command, capture_output=True, check=True), 10
            )
            print(
                f"{len(peers):>11} {ours:>11.2f} {everything:>12.2f} {printed:>8.2f}"
                f" {everything / ours:>10.1f} {printed / ours:>9.1f}"
            )
            over |= ours > BOUND_MS
    print(f"bound: {BOUND_MS} ms a scrape at the median{': EXCEEDED' if over else ''}")
    return int(over)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 4000))
