"""The Python client: the vectors it shares with the C++ one, its HTTP, and what an application can rely on."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asgi import resuming
from clients import ANSWERS, VECTORS, expand, run_python
from cutting import CuttingNetwork, Listener, listen
from omniwatch.client import Client, Ears
from omniwatch.client.http import Answer, HttpError, request
from omniwatch.client.playout import Playout
from omniwatch.link.speaker import Speaker
from omniwatch.link.virtual import run


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_vectors(vector: dict[str, Any]) -> None:
    assert run_python(map(expand, vector["script"])) == vector["expect"]


@given(st.sampled_from(ANSWERS), st.data())
def test_an_answer_cut_anywhere_is_the_same(
    case: tuple[bytes, int, bytes, bool], data: st.DataObject
) -> None:
    wire, status, body, done = case
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
    answer, got = Answer(), b""
    for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        got += answer.feed(wire[start:end])
    assert (answer.status, got, answer.done) == (status, body, done)


@pytest.mark.parametrize(
    "wire",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"x" * 70_000,
        b"HTTP/1.1 200 -\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 -\r\ntransfer-encoding: chunked\r\n\r\n" + b"1" * 2000,
    ],
)
def test_what_is_no_answer_is_refused(wire: bytes) -> None:
    with pytest.raises(HttpError):
        Answer().feed(wire)


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\nb", "a\0b"])
def test_a_header_cannot_break_out_of_its_line(value: str) -> None:
    with pytest.raises(ValueError, match="header"):
        request("POST", "/", "host", {"X-Name": value}, b"")
    with pytest.raises(ValueError, match="header"):
        request("POST", f"/{value}", "host", {}, b"")


@pytest.mark.parametrize("url", ["orin.local:8000", "ftp://x", "http://", ""])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="expected http"):
        Client(url, Ears())


@pytest.mark.parametrize("host", ["a" * 64 + ".local", "a..local"])
def test_a_name_that_no_host_can_have_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match="no host can have the name") as refused:
        Client(f"http://{host}:8000", Ears())
    assert type(refused.value) is ValueError


def test_drift_of_a_player_that_starves_is_what_the_event_contract_says() -> None:
    playout = Playout(0.08)
    assert playout.drift_ms(0.0, 1000.0) is None
    assert playout.add(0.1, 0.32) == pytest.approx(0.18)
    assert playout.drift_ms(0.18, 1180.0) == pytest.approx(0.0)
    assert playout.drift_ms(0.70, 1700.0) == pytest.approx(-200.0), "starved from 0.5 s on"
    assert playout.add(0.9, 0.4) == pytest.approx(0.9)
    assert playout.drift_ms(1.0, 2000.0) == pytest.approx(-400.0)
    assert playout.shift(1.0, -400.0) == pytest.approx(-300.0), "no more than waits to be played"
    assert playout.drift_ms(1.0, 2000.0) == pytest.approx(-100.0)


def test_a_player_that_has_run_dry_holds_still_once() -> None:
    playout = Playout(0.08)
    playout.drift_ms(0.0, 1000.0)
    playout.add(0.0, 0.4)
    # Dry since 0.48 s; the picture, at 1480 then, stood still for as long as a second less 150 ms.
    assert playout.drift_ms(1.48, 1330.0) == pytest.approx(150.0)
    assert playout.shift(1.48, 150.0) == pytest.approx(150.0)
    assert playout.dry_at == pytest.approx(1.63)
    assert playout.drift_ms(1.50, 1350.0) == pytest.approx(0.0)


def network(app: Any, **options: Any) -> CuttingNetwork:
    return CuttingNetwork(
        app, random.Random(1), **({"mean_bytes": 1 << 28, "outage_s": lambda _: 0.0} | options)
    )


def test_an_error_of_the_application_reaches_it() -> None:
    class Deaf(Ears):
        def audio(self, frame_id: int, payload: memoryview, play_at: float) -> None:
            raise RuntimeError("no sound card")

    async def main() -> None:
        app, _, _ = resuming()
        client = Client("http://server", Deaf(), connect=network(app).connect)
        with pytest.raises(RuntimeError, match="no sound card"):
            await client.speak({"seed": 1})

    run(main())


def test_a_listener_who_stops_listening_stops_the_model_server() -> None:
    async def main() -> None:
        app, speaker, _ = resuming()
        client = Client("http://server", Listener(), connect=network(app).connect)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.speak({"seed": 1}), 2.0)
        await asyncio.sleep(1.0)
        assert speaker.left == 1
        assert len(app.store) == 0

    run(main())


def test_turns_of_a_client_are_one_stream_in_the_servers_events() -> None:
    async def main() -> None:
        app, _, said = resuming()
        for seed in range(2):
            cutting = network(app, mean_bytes=40_000)
            await listen(app, cutting, seed, random.Random(seed), name="glasses")
        assert {event.stream for event in said} == {"glasses"}

    run(main())


def test_speech_that_falls_behind_the_picture_is_forced_back_and_the_server_told() -> None:
    class Watching(Listener):
        def __init__(self) -> None:
            super().__init__()
            self.shifts: list[float] = []

        def realign(self, shift_ms: float) -> None:
            self.shifts.append(shift_ms)

    async def main() -> None:
        # Half as fast as it is heard: the player starves, the voice falls behind.
        app, _, said = resuming(Speaker(speech_s=3.0, speed=0.5))
        ears = Watching()
        client = Client("http://server", ears, connect=network(app).connect)
        loop = asyncio.get_running_loop()

        async def film() -> None:
            while True:
                client.picture(loop.time() * 1000)
                await asyncio.sleep(0.04)

        filming = asyncio.ensure_future(film())
        summary = await client.speak({"seed": 1})
        filming.cancel()
        assert summary.realigned == len(ears.shifts) > 0
        assert all(shift <= -40 for shift in ears.shifts)
        await asyncio.sleep(1.0)
        assert [event.shift_ms for event in said] == pytest.approx(ears.shifts)

    run(main())


def test_the_newest_150_frames_are_kept() -> None:
    async def main() -> None:
        app, _, _ = resuming(Speaker(speech_s=20.0, speed=10.0))
        script = ["start 0", "opened 0 0", "head 0 0 200 x-omni-resume=S x-omni-first-id=0"]
        script += [f"data 0.1 0 {' '.join(f'speech:{i}:0102' for i in range(400))}", "counts"]
        assert run_python(map(expand, script))[-1] == "counts 400 0 0 0 150"
        ears, summary = await listen(app, network(app), 1, random.Random(1))
        assert (summary.spoken, len(ears.heard)) == (251, 251)

    run(main())
