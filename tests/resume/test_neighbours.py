"""Several API processes: the second that resumes beside one event file says so at its start, once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from omniwatch.resume import Resume

HOLDS = """
import sys
from pathlib import Path
from omniwatch.resume.neighbours import Lock
Lock(Path(sys.argv[1])).take()
print("held", flush=True)
sys.stdin.read()
"""


def started(events: Path) -> None:
    """Start and end a server with Resume, as ASGI servers do."""
    incoming = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

    async def app(scope, receive, send):
        for _ in range(2):
            await receive()

    async def receive():
        return incoming.pop(0)

    async def send(message):
        raise AssertionError(message)

    asyncio.run(Resume(app, environ={"OMNIWATCH_EVENTS": str(events)})({"type": "lifespan"}, receive, send))


def test_one_process_after_another_says_nothing(tmp_path, caplog):
    started(tmp_path / "events.jsonl")
    started(tmp_path / "events.jsonl")
    assert caplog.messages == []


def test_the_second_of_two_processes_says_what_it_cannot_do(tmp_path, caplog):
    events = tmp_path / "events.jsonl"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(events)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        started(events)
        started(tmp_path / "others.jsonl")
        first.kill()
    (line,) = caplog.messages
    assert "another process resumes here, too" in line
    assert "a balancer must keep each client on its own process" in line
    started(events)
    assert len(caplog.messages) == 1, "a process that was killed holds nothing"


@pytest.mark.parametrize("where", ["no/events.jsonl", "file/events.jsonl"])
def test_a_folder_that_is_missing_keeps_no_server_from_starting(tmp_path, caplog, where):
    (tmp_path / "file").write_text("")
    started(tmp_path / where)
    assert caplog.messages == []
