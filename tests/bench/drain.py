"""How fast the sidecar gets past bytes that hold no line: 100 MiB of NULs, and one line of 200 MB.

The peer is `tr -d '\\0'` over the same file, in the same run.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from omniwatch.events import Audio
from omniwatch.settings import Settings
from omniwatch.sidecar.loop import Sidecar
from omniwatch.sources.spec import open_source
from omniwatch.tap.spool import Spool

LEAST_RATIO = 1 / 5
MIB = 2**20


def fill(path: Path, byte: bytes, size: int) -> None:
    """Write so many bytes and, after them, the event that the sidecar is waited for to read."""
    block = byte * MIB
    with path.open("wb") as file:
        for _ in range(size // MIB):
            file.write(block)
        file.write(b"\n")
    Spool(path, max_bytes=2**40).write(Audio(t=time.time(), stream="a"))


def drained_s(path: Path) -> float:
    """Return how long the running sidecar takes to count the event at the end, in seconds."""
    sidecar = Sidecar(Settings(), [open_source(str(path))])
    stop = threading.Event()
    reader = threading.Thread(target=sidecar.run, args=(stop,))
    began = time.perf_counter()
    reader.start()
    while not sidecar.table.totals.audio_frames:
        time.sleep(0.001)
    took = time.perf_counter() - began
    stop.set()
    reader.join()
    sidecar.close()
    return took


def peer_s(path: Path) -> float:
    """Return how long `tr` takes, in seconds."""
    began = time.perf_counter()
    with path.open("rb") as file:
        subprocess.run(["tr", "-d", r"\0"], stdin=file, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> int:
    """Print both ratios; fail below the least."""
    worst = float("inf")
    for what, byte, size in (("100 MiB of NULs", b"\0", 100 * MIB), ("a line of 200 MB", b"x", 200 * MIB)):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "events.jsonl"
            fill(path, byte, size)
            peer, ours = min(peer_s(path) for _ in range(3)), min(drained_s(path) for _ in range(3))
        worst = min(worst, peer / ours)
        print(
            f"{what}: {size / MIB / ours:.0f} MiB/s, tr {size / MIB / peer:.0f} MiB/s, ratio {peer / ours:.2f}"
        )
    print(f"least ratio {worst:.2f}, at least {LEAST_RATIO} is asked")
    return worst < LEAST_RATIO


if __name__ == "__main__":
    sys.exit(main())
