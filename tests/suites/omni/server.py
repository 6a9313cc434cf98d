"""The installed vLLM-Omni as a child process, with the tap, resumption and the tests' own layers for middleware."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from helpers.paths import CLONE
from helpers.scripted_tap import read_events
from helpers.waiting import wait_until
from omniwatch.desk.child_process import ChildProcess, free_port, get
from omniwatch.events import AnyEvent
from suites.omni.installation import BEAT_S, Say

INSIDE = Path(__file__).parent / "inside"
"""What the server's interpreter imports of the tests."""
DEPLOY = Path(__file__).parent / "deploy.yaml"
MODEL = "tiny"
MEMORY_BYTES = 10 * 2**30
START_S = 600.0
STOP_S = 60.0
MIDDLEWARE = (
    "stopwatch.Inside",
    "omniwatch.tap.Tap",
    "stopwatch.Outside",
    "copied.Below",
    "omniwatch.resume.Resume",
)
"""Each goes around the ones before."""
ENVIRONMENT = {
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "NO_COLOR": "1",
    "VLLM_LOGGING_COLOR": "0",
}


class Omni(NamedTuple):
    """A server that is up."""

    port: int
    spool: Path
    """Where its tap writes."""
    stopwatch: Path
    copies: Path
    """Where the answers are kept that a test wants to compare."""

    def events(self) -> list[AnyEvent]:
        """All that the tap has written."""
        return read_events(self.spool)

    def streams(self) -> dict[str, list[AnyEvent]]:
        """The same, by streams."""
        found: dict[str, list[AnyEvent]] = {}
        for event in self.events():
            found.setdefault(event.stream, []).append(event)
        return found

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels, as the server's own /metrics has it; 0 where it has none."""
        exposition = get(f"http://127.0.0.1:{self.port}/metrics").decode()
        values = re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", exposition, re.MULTILINE)
        return sum(map(float, values))


def available_bytes() -> int:
    """Memory that a new process can have."""
    (kilobytes,) = re.findall(r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(kilobytes) * 1024


@contextmanager
def serving(installation: Path, directory: Path, say: Say) -> Iterator[Omni]:
    """Run it as the tests have it, while the context lasts."""
    command = [
        str(installation / "venv" / "bin" / "vllm-omni"),
        "serve",
        str(installation / "model"),
        "--omni",
    ]
    command += ["--deploy-config", str(DEPLOY), "--log-stats"]
    for name in MIDDLEWARE:
        command += ["--middleware", name]
    with started(command, directory, say) as omni:
        yield omni


@contextmanager
def started(command: list[str], directory: Path, say: Say) -> Iterator[Omni]:
    """Run a server's command, on a port of its own, while the context lasts; what it says goes to `directory`/vllm-omni.log."""
    free = available_bytes()
    assert free >= MEMORY_BYTES, f"{free / 2**30:.1f} GB of memory free, {MEMORY_BYTES / 2**30:.0f} GB needed"
    omni = Omni(free_port(), directory / "events.jsonl", directory / "stopwatch.jsonl", directory / "copies")
    log = directory / "vllm-omni.log"
    environment = os.environ | ENVIRONMENT
    environment["PYTHONPATH"] = f"{CLONE / 'exporter'}:{INSIDE}"
    environment |= {"OMNIWATCH_EVENTS": str(omni.spool), "STOPWATCH": str(omni.stopwatch)}
    environment["COPIES"] = str(omni.copies)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(omni.port)],
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _await_health(omni, process, log, say)
        yield omni
    finally:
        _stop(process)


@contextmanager
def following(spool: Path, directory: Path) -> Iterator[ChildProcess]:
    """Run a sidecar on what a tap writes, while the context lasts."""
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "omniwatch", "exporter", "--config.file=/dev/null", f"tail:{spool}"]
    service = ChildProcess(
        "sidecar", [*command, f"--web.listen-address={address}"], directory, f"http://{address}"
    )
    try:
        service.await_ready("/-/ready")
        yield service
    finally:
        service.stop()


def _await_health(omni: Omni, process: subprocess.Popen[bytes], log: Path, say: Say) -> None:
    began = beat = time.monotonic()

    def healthy() -> bool:
        nonlocal beat
        now = time.monotonic()
        if now - beat > BEAT_S:
            beat = now
            say(f"  vLLM-Omni starts: {now - began:.0f} s")
        assert process.poll() is None, f"exit {process.poll()}: {log.read_text(errors='replace')[-4000:]}"
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{omni.port}/health", timeout=5):
            return True
        return False

    wait_until(healthy, START_S, f"vLLM-Omni is up; {log} says what it does")
    say(f"  vLLM-Omni serves after {time.monotonic() - began:.0f} s")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End it and the processes it started, which are a process group of their own."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
