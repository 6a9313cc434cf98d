"""What 20 open pages cost the sidecar, with 2 and with 64 listeners whose history is full, and over TLS: CPU, scrapes, memory.

python tests/bench/pages.py [SECONDS]
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

PAGES = 20
MOST = {2: 0.02, 64: 0.04}
"""Share of a core that the pages may cost, by listeners."""
MOST_MB = 45.0
MOST_MS = 2.0
"""By how much the slowest scrape of a hundred may be later for the pages."""
TRIES = 3
"""Times of which the least counts: other programs only ever add."""
SCRAPES = 300
SCRAPE_S = 0.02
"""Seconds between two scrapes, where their time is taken."""
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mb(pid: int) -> float:
    """Return the memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def over(pid: int, seconds: float) -> float:
    """Return the share of a core that a process uses."""
    before, began = cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    return (cpu_s(pid) - before) / (time.monotonic() - began)


def speak(path: Path, listeners: int) -> None:
    """Write a second's speech of each listener each second, a turn of ten seconds after the other."""
    from helpers.events import T0, asked, audio
    from omniwatch.tap.spool import Spool

    spool = Spool(path, writer="w1")
    second = 0
    while True:
        at = time.time() - T0
        for n in range(listeners):
            if second % 10 == 0:
                spool.write(asked(at, second // 10, f"s{n}"))
            said = {"dur_ms": 1000, "pts_ms": at * 1000 - n, "video_pts_ms": at * 1000}
            spool.write(audio(at, f"s{n}", turn=second // 10, **said))
        second += 1
        time.sleep(1)


def look(url: str, ca_file: str | None) -> None:
    """Be PAGES pages: each asks for what is new each second, on a connection of its own, as browsers do."""
    context = ssl.create_default_context(cafile=ca_file) if ca_file else None

    def page() -> None:
        cursor = ""
        while True:
            request = urllib.request.Request(f"{url}live.json?since={cursor}")
            with urllib.request.urlopen(request, timeout=10, context=context) as answer:
                cursor = json.load(answer)["cursor"]
            time.sleep(1)

    for n in range(PAGES):
        threading.Timer(n / PAGES, page).start()


def fill(state: Path, listeners: int) -> None:
    """Leave a full quarter of an hour of so many listeners behind, as a sidecar would that was stopped a second ago."""
    from omniwatch.core.rule_states import Sample
    from omniwatch.live.history import SECONDS, History
    from omniwatch.settings import Settings
    from omniwatch.sidecar import live

    own = live.Live(Settings(), state / live.NAME, threading.Lock(), time.time, time.monotonic)
    own.history = History(Settings().alerts)
    for number in range(SECONDS):
        t = time.time() - SECONDS + number
        values = [
            (n, Sample(t, 40 * math.sin(number * (n + 3)), 500.0 + number % 7)) for n in range(listeners)
        ]
        own.history.add(number, t, values)
    own.due()
    own.keep()


@contextmanager
def sidecar(folder: Path, listeners: int, *flags: str) -> Iterator[tuple[int, str]]:
    """Start a sidecar with so many listeners; its process id and its address."""
    events, state = folder / "events.jsonl", folder / "state"
    state.mkdir()
    fill(state, listeners)
    words = ["-m", "omniwatch", "exporter", str(events), "--state-dir", str(state), "--config.file=/dev/null"]
    started = subprocess.Popen(
        [sys.executable, *words, "--web.listen-address", "127.0.0.1:0", *flags],
        stderr=subprocess.PIPE,
        text=True,
    )
    speaker = multiprocessing.get_context("spawn").Process(
        target=speak, args=(events, listeners), daemon=True
    )
    speaker.start()
    try:
        assert started.stderr is not None
        line = next(line for line in started.stderr if "address=" in line)
        yield started.pid, line.partition("address=")[2].split()[0].strip('"')
    finally:
        speaker.terminate()
        started.terminate()
        started.wait(10)


@contextmanager
def pages(url: str, ca_file: Path | None = None) -> Iterator[None]:
    """Have PAGES pages open."""
    opened = multiprocessing.get_context("spawn").Process(target=look, args=(url, ca_file and str(ca_file)))
    opened.start()
    time.sleep(4)
    try:
        assert opened.is_alive()
        yield
    finally:
        opened.kill()
        opened.join()


def scrape_ms(url: str) -> float:
    """Return what 99 of a hundred scrapes take at most."""
    took = []
    for _ in range(SCRAPES):
        time.sleep(SCRAPE_S)
        began = time.perf_counter()
        with urllib.request.urlopen(f"{url}metrics", timeout=10) as answer:
            answer.read()
        took.append(1000 * (time.perf_counter() - began))
    return statistics.quantiles(took, n=100)[98]


def measure(listeners: int, seconds: float) -> bool:
    """Print what pages cost with so many listeners; return whether it is within bounds."""
    with tempfile.TemporaryDirectory() as name, sidecar(Path(name), listeners) as (pid, url):
        time.sleep(3)
        alone, alone_ms = min(over(pid, seconds) for _ in range(2)), min(scrape_ms(url) for _ in range(TRIES))
        with pages(url):
            cost = min(over(pid, seconds) for _ in range(TRIES)) - alone
            later_ms = min(scrape_ms(url) for _ in range(TRIES)) - alone_ms
            resident = resident_mb(pid)
        kept = (Path(name) / "state/history").stat().st_size
    print(
        f"{listeners} listeners: {PAGES} pages cost {100 * cost:.1f} % of a core, {cost / MOST[listeners]:.2f} of what they may; "
        f"the sidecar alone {100 * alone:.1f} %\n"
        f"  scrapes' p99 moves by {later_ms:+.1f} ms (at most {MOST_MS:.0f}), from {alone_ms:.1f}; "
        f"{resident:.0f} MB resident, {resident / MOST_MB:.2f} of what it may; history file {kept:,} bytes"
    )
    return cost <= MOST[listeners] and later_ms <= MOST_MS and resident <= MOST_MB


def measure_tls(seconds: float) -> None:
    """Print what the same costs over TLS, with a handshake for each question. There is no bound."""
    from helpers.web_files import TLS, Site

    with tempfile.TemporaryDirectory() as name:
        site = Site(Path(name))
        flag = f"--web.config.file={site.write(TLS)}"
        with sidecar(Path(name), 2, flag) as (pid, url):
            time.sleep(3)
            alone = over(pid, seconds)
            with pages(url, site.ca_file):
                cost = min(over(pid, seconds) for _ in range(TRIES)) - alone
    print(f"2 listeners over TLS: {PAGES} pages cost {100 * cost:.1f} % of a core")


if __name__ == "__main__":
    given = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    within = [measure(listeners, given) for listeners in MOST]
    measure_tls(given)
    sys.exit(not all(within))
