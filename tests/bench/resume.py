"""Sixty-four streams, each cut once a second for a minute: is a frame lost, does memory grow, does the server's loop lag?

The peer is the same server, same streams, not cut. Server and clients are two processes over loopback TCP.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import uvicorn

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers.flaky_network import Listener
from omniwatch import settings
from omniwatch.client import Client, Config
from omniwatch.desk.link.fake_server import FakeServer
from omniwatch.desk.link.summary import percentile
from omniwatch.resume import Resume

STREAMS = 64
TICK_S = 0.01
SPEECH_S = 10.0


def serve(control: Connection) -> None:
    """Run the server until told to stop; between questions, collect how late its loop is."""

    async def main() -> None:
        # All streams come from one address here, as behind a reverse proxy.
        limits = settings.Resume(max_streams_per_address=STREAMS)
        speaker = FakeServer(speech_s=SPEECH_S, speed=1.0)
        app = Resume(speaker, settings=settings.Settings(resume=limits), emit=lambda event: None)
        config = uvicorn.Config(app, port=0, log_level="critical", access_log=False)
        server = uvicorn.Server(config)
        serving = asyncio.ensure_future(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        control.send(server.servers[0].sockets[0].getsockname()[1])
        lags: list[tuple[float, float]] = []
        process, loop = psutil.Process(), asyncio.get_running_loop()
        while True:
            due, worked = loop.time() + TICK_S, time.thread_time()
            await asyncio.sleep(TICK_S)
            # On a machine that others use, too, most lag is theirs: what the loop itself worked meanwhile is its own.
            lag = loop.time() - due
            lags.append((lag, min(lag, time.thread_time() - worked)))
            if control.poll():
                if control.recv() == "stop":
                    break
                cpu = process.cpu_times()
                control.send((lags, process.memory_info().rss, app.store.size, cpu.user + cpu.system))
                lags = []
        server.should_exit = True
        await serving

    asyncio.run(main())


async def listen(port: int, number: int, until: float, cut_s: float | None, tally: dict[str, int]) -> None:
    """Hear turn after turn, every connection aborted after `cut_s`."""
    speaker = FakeServer(speech_s=SPEECH_S)
    luck = random.Random(number)
    loop = asyncio.get_running_loop()

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if cut_s:
            loop.call_later(cut_s * luck.uniform(0.9, 1.1), writer.transport.abort)
        return reader, writer

    await asyncio.sleep(luck.uniform(0, 1))
    turn = 0
    while loop.time() < until:
        listener, seed = Listener(), (number + turn) % 8
        summary = await Client(
            f"http://127.0.0.1:{port}", listener, config=Config(opus=False), connect=connect
        ).speak({"seed": seed})
        right = summary.reason == "done" and listener.speech == speaker.speech(seed)
        tally["turns"] += 1
        if not right:
            tally[f"turns ended {summary.reason}"] = tally.get(f"turns ended {summary.reason}", 0) + 1
        tally["turns whole"] += right
        tally["resumptions"] += len(summary.resumptions)
        tally["frames"] += summary.spoken
        tally["frames lost"] += summary.lost
        turn += 1


async def load(port: int, seconds: float, cut_s: float | None) -> dict[str, int]:
    """Run all streams."""
    tally = dict.fromkeys(("turns", "turns whole", "resumptions", "frames", "frames lost"), 0)
    until = asyncio.get_running_loop().time() + seconds
    await asyncio.gather(*(listen(port, number, until, cut_s, tally) for number in range(STREAMS)))
    return tally


def measure(
    control: Connection, port: int, seconds: float, cut_s: float | None
) -> tuple[dict[str, int], Any]:
    """Run all streams and ask the server how it fared."""
    control.send("begin")
    _, _, _, before_s = control.recv()
    began = time.monotonic()
    tally = asyncio.run(load(port, seconds, cut_s))
    control.send("report")
    lags, rss, held, after_s = control.recv()
    return tally, (lags, rss, held, (after_s - before_s) / (time.monotonic() - began))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the streams are cut")
    seconds = parser.parse_args().seconds
    control, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,))
    server.start()
    port = control.recv()
    began = time.monotonic()
    _, (calm_lags, calm_rss, _, calm_cpu) = measure(control, port, seconds / 3, None)
    rows, tallies = [], []
    for _ in range(3):
        tally, row = measure(control, port, seconds / 3, 1.0)
        rows.append(row)
        tallies.append(tally)
    control.send("stop")
    server.join()
    lags = [lag for row in rows for lag in row[0]]
    names = {name: None for tally in tallies for name in tally}
    total = {name: sum(tally.get(name, 0) for tally in tallies) for name in names}
    say = sys.stdout.write
    say(f"{STREAMS} streams, each cut once a second, {time.monotonic() - began:.0f} s in all\n")
    for name, count in total.items():
        say(f"  {name:18}{count:>10,}\n")
    p99, calm_p99 = (percentile((lag for lag, _ in each), 0.99) * 1000 for each in (lags, calm_lags))
    own_p99 = percentile((own for _, own in lags), 0.99) * 1000
    say(f"  loop lag p99      {p99:>10.1f} ms, uncut {calm_p99:.1f} ms: ratio {p99 / calm_p99:.2f}\n")
    say(f"  of its own work   {own_p99:>10.1f} ms\n")
    cpu = sum(row[3] for row in rows) / len(rows)
    say(f"  server processor  {100 * cpu:>10.0f} % of a core, uncut {100 * calm_cpu:.0f} %\n")
    memory = " -> ".join(f"{rss / 2**20:.0f}" for rss in (calm_rss, *(row[1] for row in rows)))
    say(
        f"  server memory     {memory} MiB; held for resumption {max(row[2] for row in rows) / 2**20:.1f} MiB\n"
    )
    if total["turns whole"] < total["turns"] or total["frames lost"]:
        sys.exit("frames were lost")


if __name__ == "__main__":
    main()
