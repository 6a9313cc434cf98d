"""Events a second on one core, from file to families, against mtail on the same file.

mtail runs tests/bench/throughput.mtail: drift, frames, lost, duplicate, corrupt and events by kind. The sidecar keeps
all families. Both read the file once from its beginning to its end, pinned to the same core; what is compared is
the processor time used, start-up included.

    python tests/bench/throughput.py [LINES]
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from omniwatch import events
from omniwatch.core.streams import StreamTable
from omniwatch.ingest.intake import Intake
from omniwatch.metrics.collector import collect
from omniwatch.metrics.snapshot import ScrapeSnapshot
from omniwatch.settings import Settings
from omniwatch.sources.tail import Tail
from omniwatch.tap.spool import Spool

HERE = Path(__file__).parent
T0 = 1_790_000_000.0
FRAMES_A_TURN = 125


def read(path: Path) -> None:
    """Read a file once, as the sidecar does, and print the frames counted: a process of its own does that."""
    gc.freeze()
    gc.set_threshold(50_000)
    table, intake = StreamTable(Settings()), Intake(Tail(path))
    while intake.step(table, 128 * 1024) or not intake.source.caught_up:
        table.advance(intake.counts.last_t)
    for family in collect(ScrapeSnapshot(intake.counts.last_t, table, [intake])):
        if family.name.startswith("omni_audio_frames") and family.type == "counter":
            print(family.name, int(family.samples[0].value))


def write(path: Path, lines: int, mixed: bool) -> None:
    """Write two streams of a server that states both positions: turns of ten seconds, one frame in 500 lost."""
    spool = Spool(path, max_bytes=1 << 62, writer="bench")
    frame, written, t = [0, 0], 0, T0
    pictures = [0, 0]
    while written < lines:
        t += 0.08
        for stream in (0, 1):
            name, i = f"call-{stream}", frame[stream]
            turn = f"t{i // FRAMES_A_TURN}"
            batch: list[events.Event] = []
            while mixed and pictures[stream] / 30 < t - T0:
                batch.append(events.Video(t=t, stream=name, pts_ms=round(pictures[stream] * 1000 / 30, 3)))
                pictures[stream] += 1
            if i % FRAMES_A_TURN == 0:
                if i:
                    batch.append(
                        events.TurnEnd(
                            t=t, stream=name, turn=f"t{i // FRAMES_A_TURN - 1}", reason="completed"
                        )
                    )
                batch.append(events.TurnStart(t=t, stream=name, turn=turn))
            codes = [(i * k * 7919) % 2048 for k in (1, 2, 3, 4)]
            batch.append(
                events.Audio(
                    t=t + 0.01,
                    stream=name,
                    turn=turn,
                    pts_ms=i * 80.0,
                    video_pts_ms=round(i * 80.0 + (i * 37 % 50), 3),
                    frame_id=1 + i + i // 500,
                    checksum=codes[0] ^ codes[1] ^ codes[2] ^ codes[3],
                    codes=codes,
                    expert_mask=1 + i % 15,
                )
            )
            frame[stream] += 1
            for event in batch[: lines - written]:
                spool.write(event)
            written += len(batch[: lines - written])
    spool.close()


def used() -> float:
    """Return the processor time of all children that ended, in seconds."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def timed(argv: list[str], **environ: str) -> tuple[float, str]:
    """Run on one core; return the seconds of it that were used and the output."""
    core = str(min(os.sched_getaffinity(0)))
    before = used()
    done = subprocess.run(
        ["taskset", "-c", core, *argv], env=os.environ | environ, capture_output=True, text=True, check=True
    )
    return used() - before, done.stdout


def compare(path: Path, kind: str, lines: int) -> None:
    """Run both on one file, check that they agree, print the ratio."""
    write(path, lines, kind == "mixed")
    logs = path.parent / "mtail"
    logs.mkdir()
    theirs, shown = timed(
        [
            "mtail",
            "--one_shot",
            "--one_shot_format=prometheus",
            "--progs",
            str(HERE / "throughput.mtail"),
            "--logs",
            str(path),
            f"--log_dir={logs}",
        ],
        GOMAXPROCS="1",
    )
    ours, counted = timed([sys.executable, __file__, "--read", str(path)])
    mine = dict(line.split() for line in counted.splitlines())
    del mine["omni_audio_frames_late"]  # mtail's program cannot tell late from duplicate
    for name, value in mine.items():
        peer = re.search(rf"^{name}{{.*}} (\S+)$", shown, re.MULTILINE)
        if peer is None or float(peer[1]) != float(value):
            raise SystemExit(f"{name}: omniwatch counts {value}, mtail does not:\n{shown}")
    print(
        f"{kind}: {lines} lines, {path.stat().st_size / 1e6:.0f} MB: omniwatch {lines / ours:,.0f}/s, "
        f"mtail {lines / theirs:,.0f}/s, ratio {theirs / ours:.1f} (goal 5, better 10)"
    )


def main() -> None:
    """Print a line for each kind of file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("lines", nargs="?", type=int, default=2_000_000, help="how many")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        read(options.read)
        return
    for kind in ("audio", "mixed"):
        with tempfile.TemporaryDirectory() as directory:
            compare(Path(directory) / "events.jsonl", kind, options.lines)


if __name__ == "__main__":
    main()
