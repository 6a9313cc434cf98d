"""A writer in another process that does not wait for the reader, and a reader that is killed in full flow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from helpers.event_files import MUCH, Reader
from helpers.paths import TESTS
from omniwatch.sources.tail import Tail

pytestmark = pytest.mark.slow

LINES = 30_000
WRITER = """
import os, sys
from pathlib import Path
from helpers.event_files import line, rename_rotation, copytruncate

path, rotate, every = Path(sys.argv[1]), {"rename": rename_rotation, "copy": copytruncate}[sys.argv[2]], int(sys.argv[3])
flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
fd = os.open(path, flags)
for number in range(int(sys.argv[4])):
    if number and number % every == 0:
        rotate(path)
        if sys.argv[2] == "rename":
            os.close(fd)
            fd = os.open(path, flags)
    os.write(fd, line(number))
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("rotation", "every"), [("rename", 200), ("rename", 2000), ("copy", 3000)])
def test_every_line_of_a_writer_in_full_flow_is_counted_once(
    tmp_path: Path, rotation: str, every: int
) -> None:
    """Each tenth read the reader is gone, and another begins at what was saved some reads before."""
    path = tmp_path / "events.jsonl"
    reader = Reader(Tail(path))
    reader.read()
    saved = reader.save()
    command = [sys.executable, "-c", WRITER, str(path), rotation, str(every), str(LINES)]
    with subprocess.Popen(command, cwd=TESTS) as writer:
        reads = 0
        while writer.poll() is None or not reader.source.caught_up:
            reader.read(MUCH if reads % 3 else 1)
            reads += 1
            if reads % 10 == 4:
                saved = reader.save()
            if reads % 10 == 0:
                reader.source.close()
                reader = saved.resume(Tail(path))
    assert writer.returncode == 0
    reader.drain()
    assert len(reader.counts) == LINES
    assert set(reader.counts.values()) == {1}
    assert (reader.sequence.lost, reader.sequence.repeated) == (0, 0)
    assert not reader.invalid
