"""The sidecar killed in full flow: what it counts over its lives is what was written."""

from __future__ import annotations

import random
import re
import signal
import sys
import threading

from helpers.waiting import wait_until
from omniwatch import events
from omniwatch.desk.child_process import ChildProcess, free_port, get
from omniwatch.tap.spool import Spool

KILLS = 5
EVENTS = 60_000
ROTATE_BYTES = 400_000
EXPORTER = (sys.executable, "-m", "omniwatch", "exporter", "--config.file=/dev/null")


def value(metrics: str, name: str) -> int:
    return sum(int(float(v)) for v in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", metrics, re.MULTILINE))


def test_counters_survive_five_kills_while_the_file_is_written_and_rotated(tmp_path):
    path = tmp_path / "events.jsonl"
    written = threading.Semaphore(0)
    kills_done = threading.Event()

    def write() -> None:
        spool = Spool(path, max_bytes=ROTATE_BYTES, keep=100)
        for i in range(EVENTS):
            t = 1_790_000_000 + i * 0.001
            spool.write(
                events.Audio(t=t, stream=f"call-{i % 2}", frame_id=i // 2, pts_ms=0.0, video_pts_ms=1.0)
            )
            written.release()
            if i > EVENTS - 2000:
                kills_done.wait()
        spool.close()

    address = f"127.0.0.1:{free_port()}"
    sidecar = ChildProcess(
        "sidecar",
        [*EXPORTER, str(path), f"--web.listen-address={address}", f"--state-dir={tmp_path / 'state'}"],
        tmp_path,
        f"http://{address}",
    )
    writer = threading.Thread(target=write, daemon=True)
    rng = random.Random(7)
    try:
        sidecar.await_ready("/-/healthy")
        writer.start()
        shown = 0
        for _ in range(KILLS):
            for _ in range(rng.randrange(2000, 8000)):
                written.acquire()
            now = value(get(sidecar.url + "/metrics").decode(), "omni_audio_frames_total")
            assert now >= shown, "a counter fell"
            shown = now
            for _ in range(rng.randrange(100, 2000)):
                written.acquire()
            sidecar.process.send_signal(signal.SIGKILL)
            sidecar.process.wait()
            sidecar.start()
            sidecar.await_ready("/-/healthy")
        kills_done.set()
        writer.join()
        metrics = wait_until(lambda: all_read(sidecar), what="the whole of it to be read")
    finally:
        kills_done.set()
        sidecar.stop()
    assert len(list(tmp_path.glob("events.jsonl.*"))) >= KILLS, "the file was rotated all the while"
    assert value(metrics, "omni_audio_frames_total") == EVENTS
    assert value(metrics, "omniwatch_events_total") == EVENTS
    assert value(metrics, "omni_codec_drift_abs_seconds_count") == EVENTS
    for name in (
        "omniwatch_events_lost_total",
        "omniwatch_events_repeated_total",
        "omniwatch_events_invalid_total",
        "omniwatch_checkpoint_errors_total",
        "omni_audio_frames_lost_total",
        "omni_audio_frames_duplicate_total",
    ):
        assert value(metrics, name) == 0, name


def all_read(sidecar: ChildProcess) -> str:
    metrics = get(sidecar.url + "/metrics").decode()
    return metrics if value(metrics, "omni_audio_frames_total") >= EVENTS else ""
