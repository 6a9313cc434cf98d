"""What 20 open pages cost the sidecar, with 2 and with 64 listeners: CPU, memory, the whole window, the history's bytes a day.

python tests/bench/pages.py [SECONDS]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS))

PAGES = 20
MOST = {2: 0.02, 64: 0.04}
"""Share of a core that the pages may cost, by listeners."""
TRIES = 3
"""Times of which the least counts: other programs only ever add."""
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mb(pid: int) -> float:
    """Return the memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def speak(path: Path, listeners: int, stop: threading.Event) -> None:
    """Write a second's speech of each listener each second."""
    from helpers.events import T0, audio
    from omniwatch.tap.spool import Spool

    spool = Spool(path, writer="w1")
    while not stop.wait(1):
        at = time.time() - T0
        for n in range(listeners):
            spool.write(audio(at, f"s{n}", dur_ms=1000, pts_ms=at * 1000 - n, video_pts_ms=at * 1000))
    spool.close()


def look(url: str, stop: threading.Event) -> None:
    """Ask for what is new each second, as a page does."""
    cursor = ""
    while not stop.wait(1):
        request = urllib.request.Request(f"{url}?since={cursor}", headers={"Connection": "close"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            cursor = json.load(answer)["cursor"]


def over(pid: int, seconds: float) -> float:
    """Return the share of a core that a process uses."""
    before, began = cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    return (cpu_s(pid) - before) / (time.monotonic() - began)


def measure(listeners: int, seconds: float) -> bool:
    """Print what pages cost with so many listeners; return whether it is within MOST."""
    stop = threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        events, state = Path(folder) / "events.jsonl", Path(folder) / "state"
        state.mkdir()
        words = ["-m", "omniwatch", "exporter", str(events), "--state-dir", str(state)]
        sidecar = subprocess.Popen(
            [sys.executable, *words, "--web.listen-address", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True
        )
        try:
            assert sidecar.stderr is not None
            line = next(line for line in sidecar.stderr if "address=" in line)
            url = line.partition("address=")[2].split()[0].strip('"') + "live.json"
            threading.Thread(target=speak, args=(events, listeners, stop), daemon=True).start()
            time.sleep(3)
            alone = over(sidecar.pid, seconds)
            for n in range(PAGES):
                threading.Timer(n / PAGES, look, (url, stop)).start()
            time.sleep(3)
            cost = min(over(sidecar.pid, seconds) for _ in range(TRIES)) - alone
            kept = state / "history"
            print(
                f"{listeners} listeners: {PAGES} pages cost {100 * cost:.1f} % of a core (at most {100 * MOST[listeners]:.0f} %), "
                f"the sidecar alone {100 * alone:.1f} %; {resident_mb(sidecar.pid):.0f} MB resident; "
                f"history file {kept.stat().st_size if kept.exists() else 0:,} bytes"
            )
            return cost <= MOST[listeners]
        finally:
            stop.set()
            time.sleep(1.2)
            sidecar.terminate()
            sidecar.wait(10)


if __name__ == "__main__":
    given = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    within = [measure(listeners, given) for listeners in MOST]
    sys.exit(not all(within))
