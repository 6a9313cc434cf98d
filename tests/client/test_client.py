"""The Python client: the vectors it shares with the C++ one, its HTTP, and what an application can rely on."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.asgi import resuming
from helpers.clients import ANSWERS, INVALID, VECTORS, expand, run_python
from helpers.flaky_network import CuttingNetwork, Listener, listen
from omniwatch.cli import NO_PIP
from omniwatch.client import Client, Config, TurnCallbacks
from omniwatch.client.http import HttpError, Response, encode_request
from omniwatch.client.playout import Playout
from omniwatch.desk.link.fake_server import FakeServer
from omniwatch.desk.link.virtual import run
from omniwatch.resume import protocol


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_vectors(vector: dict[str, Any]) -> None:
    assert run_python(map(expand, vector["script"])) == vector["expect"]


@given(st.sampled_from(ANSWERS), st.data())
def test_an_answer_cut_anywhere_is_the_same(
    case: tuple[bytes, int, bytes, bool], data: st.DataObject
) -> None:
    wire, status, body, done = case
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=8)))
    answer, got = Response(), b""
    for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        got += answer.feed(wire[start:end])
    assert (answer.status, got, answer.done) == (status, body, done)


@pytest.mark.parametrize("wire", INVALID.values(), ids=INVALID)
def test_what_is_no_answer_is_refused(wire: bytes) -> None:
    with pytest.raises(HttpError):
        Response().feed(wire)


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\nb", "a\0b"])
def test_a_header_cannot_break_out_of_its_line(value: str) -> None:
    with pytest.raises(ValueError, match="header"):
        encode_request("POST", "/", "host", {"X-Name": value}, b"")
    with pytest.raises(ValueError, match="header"):
        encode_request("POST", f"/{value}", "host", {}, b"")


@pytest.mark.parametrize("url", ["orin.local:8000", "ftp://x", "http://", ""])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="expected http"):
        Client(url, TurnCallbacks())


@pytest.mark.parametrize("host", ["a" * 64 + ".local", "a..local"])
def test_a_name_that_no_host_can_have_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match="no host can have the name") as refused:
        Client(f"http://{host}:8000", TurnCallbacks())
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
    class Deaf(TurnCallbacks):
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
        client = Client("http://server", Listener(), config=Config(opus=False), connect=network(app).connect)
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
        assert {event.stream for event in said} == {"name=glasses"}

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
        app, _, said = resuming(FakeServer(speech_s=3.0, speed=0.5))
        listener = Watching()
        client = Client("http://server", listener, connect=network(app).connect, config=Config(warm_s=0))
        loop = asyncio.get_running_loop()

        async def film() -> None:
            while True:
                client.picture(loop.time() * 1000)
                await asyncio.sleep(0.04)

        filming = asyncio.ensure_future(film())
        summary = await client.speak({"seed": 1})
        filming.cancel()
        assert summary.realigned == len(listener.shifts) > 0
        assert all(shift <= -40 for shift in listener.shifts)
        await asyncio.sleep(1.0)
        assert [event.shift_ms for event in said] == pytest.approx(listener.shifts)

    run(main())


def test_the_newest_150_frames_are_kept() -> None:
    async def main() -> None:
        app, _, _ = resuming(FakeServer(speech_s=20.0, speed=10.0))
        script = ["start 0", "opened 0 0", "head 0 0 200 x-omni-resume=S x-omni-first-id=0"]
        script += [f"data 0.1 0 {' '.join(f'speech:{i}:0102' for i in range(400))}", "counts"]
        assert run_python(map(expand, script))[-1] == "counts 400 0 0 0 150"
        listener, summary = await listen(app, network(app), 1, random.Random(1))
        assert (summary.spoken, len(listener.heard)) == (251, 251)

    run(main())


@pytest.mark.parametrize("status", [204, 405])
def test_the_id_of_a_hang_up_goes_in_a_header_and_in_no_url(status: int) -> None:
    app, _, _ = resuming()
    asked: list[tuple[str, str | None]] = []
    given: dict[bytes, bytes] = {}

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        async def sent(message: Any) -> None:
            given.update(dict(message.get("headers", [])))
            await send(message)

        if scope["method"] != "DELETE":
            await app(scope, receive, sent)
            return
        named = dict(scope["headers"]).get(b"x-omni-resume")
        asked.append((scope["path"], named and named.decode()))
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def main() -> None:
        client = Client("http://server", Listener(), connect=network(noting).connect)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.speak({"seed": 1}), 1.0)

    run(main())
    assert asked == [("/v1/resume", given[b"x-omni-resume"].decode())]


def test_the_question_is_whole_at_once_and_one_more_packet_follows_it() -> None:
    """The kernel learns from it, a round trip later, that the question was lost."""
    app, speaker, _ = resuming(FakeServer(speech_s=0.5))
    written: list[tuple[float, bytes]] = []

    class Noting(CuttingNetwork):
        async def connect(self) -> Any:
            ours, theirs = await super().connect()
            write, loop = theirs.write, asyncio.get_running_loop()

            def noted(data: bytes) -> None:
                written.append((loop.time(), data))
                write(data)

            theirs.write = noted  # type: ignore[method-assign]  # the client's own end
            return ours, theirs

    async def main() -> None:
        network = Noting(app, random.Random(1), mean_bytes=10**9, outage_s=lambda luck: 0.0)
        await Client("http://server", Listener(), connect=network.connect, config=Config(warm_s=0)).speak(
            {"seed": 1}
        )

    run(main())
    (asked_at, asked), (echoed_at, echo), *_ = written
    assert asked.endswith(b'{"stream": true, "seed": 1}')
    assert b"X-Omni-Padding: 1\r\n" in asked
    assert b"Content-Length: 28\r\n" in asked
    assert (echo, echoed_at) == (b"\n", pytest.approx(asked_at + 0.01))
    assert speaker.turns == 1


def test_resumption_is_asked_for_by_name() -> None:
    app, _, _ = resuming()
    accepted = set()

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        accepted.add(dict(scope["headers"])[b"accept"].decode())
        await app(scope, receive, send)

    async def main() -> None:
        await listen(noting, network(noting, mean_bytes=40_000), 1, random.Random(1))

    run(main())
    assert accepted == {"application/vnd.omniwatch.frames"}
    accepted.add("application/vnd.omniwatch.frames;codec=opus;bitrate=24000")
    for accept, form in (
        *((accept, "binary") for accept in accepted),
        ("text/event-stream;omniwatch=resume", "sse"),
    ):
        assert protocol.wanted([(b"accept", accept.encode())]) == form


@pytest.mark.parametrize("library", ["h11", "aiohappyeyeballs"])
@pytest.mark.slow
def test_without_its_libraries_the_client_names_the_extra(library: str) -> None:
    script = f"import sys; sys.modules[{library!r}] = None; "
    imported = subprocess.run(
        [sys.executable, "-c", script + "import omniwatch.client"],
        capture_output=True,
        text=True,
        check=False,
    )
    said = f"omniwatch.client needs the library {library}: pip install 'omniwatch[client]'"
    assert imported.stderr.splitlines()[-1] == f"ModuleNotFoundError: {said}"
    command = ["bench", "resume", "--scenario", "tunnel", "--seeds", "1"]
    done = subprocess.run(
        [sys.executable, "-c", script + "from omniwatch.cli import main; main()", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, f"Error: {said}\n")
    without_pip = "import sys; sys.modules['pip'] = None; " + script
    done = subprocess.run(
        [sys.executable, "-c", without_pip + "from omniwatch.cli import main; main()", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, f"Error: {said}{NO_PIP}\n")


def test_a_network_that_leaves_frames_alone_needs_no_library_of_the_client() -> None:
    script = "import sys; sys.modules['h11'] = sys.modules['aiohappyeyeballs'] = None; "
    script += "from omniwatch.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "link", "--list"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    framed = ["link", "--to", "127.0.0.1:1", "--scenario", "datagrams"]
    done = subprocess.run(
        [sys.executable, "-c", script, *framed], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 2
    assert done.stderr.endswith("pip install 'omniwatch[client]'\n")
