"""A server of nothing but CPU use: so many milliseconds in so many threads for each frame, frames every 80 ms.

    python tests/helpers/cpu_load.py WORK_MS THREADS SECONDS EVENTS_FILE

It writes the event contract (audio after each frame) and, at its end, one line of JSON: the latenesses, and every time
over 20 ms that one of its threads, wanting nothing but to run, was not let run.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from pathlib import Path

from omniwatch import events
from omniwatch.tap.spool import Spool

FRAME_S = 0.08
STOP_S = 0.02
BLOCK = b"\0" * 262144


class Worker(threading.Thread):
    """Burns CPU time when told to; hashing lets go of the interpreter's lock, so that workers run side by side."""

    def __init__(self, work_s: float, start: threading.Barrier, end: threading.Barrier) -> None:
        super().__init__(daemon=True)
        self.stops_s: list[float] = []
        self._work_s, self._begin, self._end = work_s, start, end

    def run(self) -> None:
        while True:
            self._begin.wait()
            until = time.thread_time() + self._work_s
            last = time.monotonic()
            while time.thread_time() < until:
                hashlib.sha256(BLOCK).digest()
                now = time.monotonic()
                if now - last > STOP_S:
                    self.stops_s.append(now - last)
                last = now
            self._end.wait()


def main(work_ms: float, threads: int, seconds: float, path: Path) -> None:
    spool = Spool(path)
    begin, end = threading.Barrier(threads + 1), threading.Barrier(threads + 1)
    workers = [Worker(work_ms / 1000 / threads, begin, end) for _ in range(threads)]
    for worker in workers:
        worker.start()
    wall = time.time()
    spool.write(events.StreamStart(t=wall, stream="load"))
    spool.write(events.TurnStart(t=wall, stream="load", turn=1))
    started, late, pause = time.monotonic(), [], threading.Event()
    for frame in range(round(seconds / FRAME_S)):
        due = started + frame * FRAME_S
        pause.wait(max(0.0, due - time.monotonic()))
        begin.wait()
        end.wait()
        late.append(time.monotonic() - due)
        spool.write(events.Audio(t=time.time(), stream="load", turn=1))
        if time.monotonic() > started + seconds:
            break
    spool.write(events.TurnEnd(t=time.time(), stream="load", turn=1, reason="done"))
    spool.close()
    stops = [stop for worker in workers for stop in worker.stops_s]
    sys.stdout.write(json.dumps({"late_s": late, "stops_s": stops}) + "\n")


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), Path(sys.argv[4]))
