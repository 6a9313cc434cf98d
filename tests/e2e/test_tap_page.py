"""A server that generates slower than it speaks, the tap in front of it: a person is paged, until the listener leaves."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import pytest
import websockets

from helpers import recording_server
from helpers.paths import TESTS
from helpers.recording_server import until
from helpers.scripted_tap import VIDEO, read_events, recorded_steps
from helpers.waiting import wait_until
from omniwatch.core.streams import StreamTable
from omniwatch.desk.demo import GRACE_S
from omniwatch.desk.demo.local_stack import Notice, Stack
from omniwatch.settings import Settings

NAME = "slow-generation"
# As recorded, the voice is behind for 18 s: Prometheus needs 15 s of them, and up to 5 s until it looks.
STRETCH = 1.5
PATIENCE_S = 60.0


async def listen(port: int, leaving: asyncio.Event) -> None:
    """Be the client of the recording, stretched; when it has said all but its last word, stay on the line until told."""
    said = [step for step in recorded_steps(NAME) if step.message["type"] == "websocket.receive"]
    url = f"ws://127.0.0.1:{port}{VIDEO}?recording={NAME}&stretch={STRETCH}"
    async with websockets.connect(url, max_size=None, compression=None) as connection:
        began = time.monotonic()

        async def hear() -> None:
            async for _ in connection:
                pass

        hearing = asyncio.create_task(hear())
        for step in said[:-1]:
            await until(began + step.t - said[0].t)
            await connection.send(step.message["text"])
        await leaving.wait()
        await connection.send(said[-1].message["text"])
        await hearing


async def next_notice(stack: Stack) -> Notice:
    return await asyncio.to_thread(stack.pager.notices.get, True, PATIENCE_S)


def crossed_t(path: Path, threshold_ms: float) -> float:
    """When the voice, by the events, was first so far behind."""
    table = StreamTable(Settings())
    for event in read_events(path):
        table.apply(event)
        stream = table.state.streams.get(event.stream)
        if stream is not None and (stream.drift_ms or 0.0) < -threshold_ms:
            return event.t
    raise AssertionError("never so far behind")


@pytest.mark.timeout(240)
def test_slow_generation_pages_and_the_end_of_the_call_resolves_it(tmp_path: Path) -> None:
    port_file, actual = tmp_path / "port", tmp_path / "actual"
    actual.mkdir()

    async def incident(stack: Stack) -> tuple[Notice, float, Notice]:
        leaving = asyncio.Event()
        call = asyncio.create_task(listen(int(port_file.read_text()), leaving))
        paging = asyncio.create_task(next_notice(stack))
        await asyncio.wait({call, paging}, return_when=asyncio.FIRST_COMPLETED)
        if call.done():
            call.result()
        page = await paging
        (series,) = await asyncio.to_thread(stack.query, "omni_codec_drift_ms")
        leaving.set()
        await call
        return page, float(series["value"][1]), await next_notice(stack)

    with Stack(tmp_path / "stack", say=lambda line: None) as stack:
        command = [sys.executable, "-m", recording_server.__name__, str(port_file), str(actual)]
        stack.run("server", ["env", f"PYTHONPATH={TESTS}", f"OMNIWATCH_EVENTS={stack.events}", *command])
        wait_until(lambda: port_file.exists() and port_file.read_text())
        wait_until(lambda: stack.query("omniwatch_build_info"), what="Prometheus scrapes")
        page, drift_ms, resolved = asyncio.run(incident(stack))
        alerts = stack.settings.alerts
        crossing_t = crossed_t(stack.events, alerts.drift_page_ms)
    assert (page.alert, page.status) == ("CodecDrift", "firing")
    assert drift_ms < -alerts.drift_page_ms
    assert page.received_t - crossing_t <= alerts.drift_for_s + GRACE_S
    assert (resolved.alert, resolved.status) == ("CodecDrift", "resolved")
