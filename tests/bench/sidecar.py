"""What the sidecar costs on a device: two live streams, a scrape of 64 streams, freshness, the command line's start.

Peers in the same run: mtail following the same file, and an exposition of prometheus_client's own of as many samples.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import generate_latest

from omniwatch import events
from omniwatch.desk.child_process import ChildProcess, free_port, get
from omniwatch.tap.spool import Spool

HERE = Path(__file__).parent
LIVE_S = float(os.environ.get("BENCH_LIVE_S", "30"))
STREAMS = 64
SCRAPES = 300
EXPORTER = (sys.executable, "-m", "omniwatch", "exporter", "--config.file=/dev/null")


def p99(values: list[float]) -> float:
    """Return the 99th percentile."""
    return statistics.quantiles(values, n=100)[98]


def serve(directory: Path, path: Path) -> ChildProcess:
    """Start the sidecar on a file."""
    address = f"127.0.0.1:{free_port()}"
    argv = [*EXPORTER, str(path), f"--web.listen-address={address}", f"--state-dir={directory / 'state'}"]
    sidecar = ChildProcess("sidecar", argv, directory, f"http://{address}")
    sidecar.await_ready("/-/healthy")
    return sidecar


def two_live_streams(directory: Path) -> None:
    """Write 12.5 audio and 30 video events a second for each of two streams, scraped each second."""
    path = directory / "events.jsonl"
    spool = Spool(path)
    sidecar = serve(directory, path)
    logs = directory / "mtail"
    logs.mkdir()
    program = ("mtail", "--progs", str(HERE / "throughput.mtail"), "--logs", str(path))
    mtail = ChildProcess(
        "mtail", [*program, f"--log_dir={logs}", "--port=0", "--address=127.0.0.1"], directory
    )
    watched = {"omniwatch": psutil.Process(sidecar.process.pid), "mtail": psutil.Process(mtail.process.pid)}
    stop = threading.Event()

    def scrape() -> None:
        while not stop.wait(1):
            get(sidecar.url + "/metrics")

    scraper = threading.Thread(target=scrape)
    began, frame, picture = time.monotonic(), 0, 0
    used: dict[str, float] = {}
    scraper.start()
    while (now := time.monotonic() - began) < LIVE_S + 2:
        if now >= 2 and not used:
            used = {name: sum(process.cpu_times()[:2]) for name, process in watched.items()}
        for stream in ("a", "b"):
            t = time.time()
            if picture <= now * 30:
                spool.write(events.Video(t=t, stream=stream, pts_ms=picture * 1000 / 30))
            if frame <= now * 12.5:
                ids = {"frame_id": frame, "pts_ms": frame * 80.0, "video_pts_ms": frame * 80.0}
                spool.write(events.Audio(t=t, stream=stream, **ids))
        picture += picture <= now * 30
        frame += frame <= now * 12.5
        time.sleep(0.004)
    stop.set()
    scraper.join()
    for name, process in watched.items():
        share = (sum(process.cpu_times()[:2]) - used[name]) / LIVE_S * 100
        print(
            f"two live streams, {LIVE_S:.0f} s: {name} {share:.2f} % of a core, {process.memory_info().rss / 1e6:.0f} MB"
        )
    mtail.stop()
    sidecar.stop()
    print("  goal: omniwatch at most 1 % and 60 MB")


def scrape_and_freshness(directory: Path) -> None:
    """Scrape 64 streams that all have every series; then see how soon a written event is served."""
    path = directory / "events.jsonl"
    spool = Spool(path, max_bytes=1 << 40)
    t0 = time.time() - 70

    def audio(stream: int, i: int, t: float) -> events.Audio:
        ids = {"turn": "t", "frame_id": i, "pts_ms": i * 80.0, "video_pts_ms": i * 80.05}
        return events.Audio(t=t, stream=f"call-{stream}", **ids)

    for stream in range(STREAMS):
        spool.write(events.TurnStart(t=t0, stream=f"call-{stream}", turn="t"))
    frames = 0
    while t0 + frames * 0.08 < time.time():
        for stream in range(STREAMS):
            spool.write(audio(stream, frames, t0 + frames * 0.08))
        frames += 1
    sidecar = serve(directory, path)
    wanted = re.compile(rb"^omni_audio_frames_total (\d+)", re.MULTILINE)

    def shown() -> int:
        found = wanted.search(get(sidecar.url + "/metrics"))
        return int(found[1]) if found else 0

    written = frames * STREAMS
    while shown() < written:
        time.sleep(0.1)
    ours: list[float] = []
    for _ in range(SCRAPES):
        for stream in range(STREAMS):
            spool.write(audio(stream, frames, time.time()))
        frames += 1
        began = time.perf_counter()
        body = get(sidecar.url + "/metrics")
        ours.append((time.perf_counter() - began) * 1000)
    samples = sum(not line.startswith(b"#") for line in body.splitlines())
    registry = CollectorRegistry()
    gauge = Gauge("peer", "As many samples.", ["stream"], registry=registry)
    for i in range(samples):
        gauge.labels(str(i)).set(i)
    theirs: list[float] = []
    for _ in range(SCRAPES):
        began = time.perf_counter()
        generate_latest(registry)
        theirs.append((time.perf_counter() - began) * 1000)
    print(
        f"scrape of {STREAMS} streams, {samples} samples: p99 {p99(ours):.1f} ms over HTTP; prometheus_client alone "
        f"{p99(theirs):.1f} ms in the process, ratio {p99(ours) / p99(theirs):.1f} (goal p99 10 ms)"
    )

    written = frames * STREAMS
    late: list[float] = []
    for i in range(SCRAPES):
        began = time.perf_counter()
        spool.write(audio(i % STREAMS, frames + i // STREAMS, time.time()))
        written += 1
        while shown() < written:
            pass
        late.append((time.perf_counter() - began) * 1000)
    print(f"write to scrape: p99 {p99(late):.1f} ms (goal 150 ms)")
    sidecar.stop()


def command_line() -> None:
    """Start `omniwatch --help`, against a bare interpreter."""

    def run(*argv: str) -> float:
        took = []
        for _ in range(15):
            began = time.perf_counter()
            subprocess.run([sys.executable, *argv], capture_output=True, check=True)
            took.append((time.perf_counter() - began) * 1000)
        return statistics.median(took)

    ours, bare = run("-m", "omniwatch", "--help"), run("-c", "pass")
    print(
        f"omniwatch --help: {ours:.0f} ms, the interpreter alone {bare:.0f} ms, ratio {ours / bare:.1f} (goal 200 ms)"
    )


with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
    two_live_streams(Path(first))
    scrape_and_freshness(Path(second))
command_line()
