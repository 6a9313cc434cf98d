"""Servers under measurement that mean harm: each turn is over in time and counted, and the result can be written."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from pathlib import Path

import httpx
import msgspec
import pytest
from click.testing import CliRunner

from helpers.hostile_http import ENDLESS, HEADS, OK, hostile
from helpers.made_up_servers import (
    DONE,
    Made,
    Reply,
    always,
    event,
    pcm,
    run,
    speech,
    stream,
    text,
    usage,
    wav,
)
from omniwatch.cli import main
from omniwatch.desk.chain import Result, Turn
from omniwatch.desk.chain.calls import Calls, Server, served_model
from omniwatch.desk.chain.kv import KvWatch
from omniwatch.desk.chain.questions import Asked
from omniwatch.desk.chain.run import MAX_TURN_S
from omniwatch.desk.chain.sentences import LONGEST, Sentences
from omniwatch.desk.chain.session import Wanted, measure
from omniwatch.desk.chain.tables import terminal

QUESTION = Asked("q", wav(0.1), 0.1, "why is the sky blue")
GOOD = {
    "asr": Reply("application/json", [(0.1, b'{"text": "why"}')]),
    "llm": stream((0.1, text("It is.") + DONE)),
    "tts": Reply("audio/pcm;rate=24000", [(0.1, pcm(0.5))]),
}


def turn_of(parts: dict[str, Reply]) -> Turn:
    """One turn on a clock of its own; its result is written, read back and shown."""
    servers = {part: Server(part, f"http://{part}") for part in parts}
    wanted = Wanted(servers, [QUESTION], turns=1, warmup=0)
    made = Made(**{part: always(reply) for part, reply in parts.items()})
    result = run(lambda clock: measure(wanted, clock=clock, began="", machine={}, transport=made))
    back = msgspec.json.decode(msgspec.json.encode(result), type=Result)
    assert terminal(back).replace("\n", "").isprintable()
    (turn,) = back.turns
    return turn


def native(*steps: tuple[float, bytes]) -> Turn:
    return turn_of({"native": stream(*steps)})


SLOWLY = [(20.0, text("and "))] * 100
LASTING = {
    "native": {"native": stream(*SLOWLY)},
    "asr": GOOD | {"asr": Reply("application/json", [(20.0, b" ")] * 100)},
    "llm": GOOD | {"llm": stream(*SLOWLY)},
    "tts": GOOD | {"tts": Reply("audio/pcm;rate=24000", [(20.0, pcm(0.1))] * 100)},
}


@pytest.mark.parametrize("part", LASTING)
def test_the_whole_of_a_turn_is_bounded_in_time(part: str) -> None:
    turn = turn_of(LASTING[part])
    assert turn.outcome == "timeout"
    if part == "asr":
        assert turn.detail == "nothing new for 30 s"
    else:
        assert turn.detail == f"the turn went on for more than {MAX_TURN_S:g} s"
        assert turn.end_s == pytest.approx(MAX_TURN_S, abs=1)


def test_sound_without_end_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omniwatch.desk.chain.calls.MAX_EVENT_BYTES", 1 << 20)
    turn = turn_of(GOOD | {"tts": Reply("audio/pcm;rate=24000", [(0.0, pcm(1.0))] * 100)})
    assert (turn.part, turn.outcome, turn.detail) == (
        "tts",
        "malformed",
        "an answer of more than 1048576 bytes",
    )


@pytest.mark.parametrize("piece", ["." * 3_000_000, ". " * 1_500_000, "a" * 3_000_000, "\u3002" * 3_000_000])
def test_a_text_of_nothing_but_ends_takes_no_square_of_its_length(piece: str) -> None:
    began = time.process_time()
    turn = native((0.1, text(piece)), (0.1, DONE))
    assert (turn.outcome, turn.detail) == ("malformed", "a text of more than 200000 characters")
    sentences = Sentences()
    found = [*sentences.feed(piece[:200_000]), *sentences.end()]
    assert time.process_time() - began < 10
    assert all(len(sentence) <= 2 * LONGEST for sentence in found)


def test_sentences_are_the_same_in_one_piece_and_in_many() -> None:
    whole = (
        'Dr. Who came... "Really?!" she said. No! ' * 40 + "\u5929\u7a7a\u662f\u84dd\u8272\u7684\u3002" * 30
    )
    one, many = Sentences(), Sentences()
    pieces = [many.feed(letter) for letter in whole]
    assert one.feed(whole) + one.end() == [*itertools.chain(*pieces), *many.end()]


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (event({"choices": [], "usage": {"completion_tokens": -5}}), "malformed"),
        (usage(10**400), "malformed"),
        (speech(pcm(0.1), 1e-308), "malformed"),
        (speech(pcm(0.1), 1e308), "malformed"),
        (b'data: {"error": ' + b"[" * 400 + b"]" * 400 + b"}\n\n", "error"),
        (b'data: {"error": "\x1b[2J' + b"no" * 90_000 + b'"}\n\n', "malformed"),
        (b'data: {"error": "\\u001b[2J' + b"no" * 90_000 + b'"}\n\n', "error"),
        (b'data: {"choices": [{"delta": {"content": "\\ud800"}}]}\n\n', "malformed"),
    ],
    ids=["tokens-below-0", "tokens-10-400", "1e-308-hz", "1e308-hz", "deep", "escape", "long", "surrogate"],
)
def test_an_answer_that_lies_is_counted(said: bytes, outcome: str) -> None:
    turn = native((0.1, speech(pcm(0.1)) + said + DONE))
    assert turn.outcome == outcome
    assert len(turn.detail or "") <= 300
    assert (turn.detail or "").isprintable()


@pytest.mark.parametrize(
    "said", [b'"\\ud800"', b'"' + b"so " * 90_000 + b'"', b"[" * 5000, b"9" * 5000, b"null"]
)
def test_a_transcription_that_is_none_is_counted(said: bytes) -> None:
    turn = turn_of(GOOD | {"asr": Reply("application/json", [(0.1, b'{"text": ' + said + b"}")])})
    assert (turn.part, turn.outcome) == ("asr", "malformed")


@pytest.mark.slow
@pytest.mark.parametrize("name", ENDLESS)
def test_an_answer_without_end_is_over_in_time(name: str) -> None:
    speech, pause_s = ENDLESS[name]
    with hostile(speech, pause_s, HEADS.get(name, b"")) as url:
        servers = {"native": Server("native", url, model="m")}
        wanted = Wanted(servers, [QUESTION], turns=1, warmup=0, timeout_s=0.5)
        began = time.monotonic()
        result = asyncio.run(measure(wanted, clock=time.monotonic, began="", machine={}))
        assert time.monotonic() - began < 8
    assert result.turns[0].outcome in ("timeout", "malformed", "error", "cut")


@pytest.mark.parametrize(
    ("models", "named"),
    [
        (b'{"data": [{"id": "m"}]}', "m"),
        (b'{"data": [{"id": ' + b"[" * 900 + b"]" * 900 + b"}]}", ""),
        (b'{"data": [{"id": "' + b"m" * 5000 + b'"}]}', ""),
        (b'{"data": [{"id": "\\ud800"}]}', ""),
        (b'{"data": [{"id": 5}]}', ""),
    ],
    ids=["good", "deep", "long", "surrogate", "number"],
)
def test_the_model_is_named_by_a_text_of_bounded_length(models: bytes, named: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=models)

    async def ask() -> str:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            return await served_model(Calls(client, time.monotonic, 5.0), Server("native", "http://x"))

    assert asyncio.run(ask()) == named


def test_models_that_drip_have_one_deadline() -> None:
    with hostile(lambda: itertools.repeat(b" "), 0.1, OK + b"Content-Length: 9999\r\n\r\n") as url:

        async def ask() -> str:
            async with httpx.AsyncClient(timeout=None) as client:
                return await served_model(Calls(client, time.monotonic, 1.0), Server("native", url))

        began = time.monotonic()
        with pytest.raises(Exception, match="nothing new for 1 s"):
            asyncio.run(ask())
        assert time.monotonic() - began < 8


@pytest.mark.parametrize("name", ["sends a body", "drips its body", "sends headers"])
def test_metrics_without_end_are_looked_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omniwatch.desk.chain.kv.LOOK_S", 0.5)
    monkeypatch.setattr("omniwatch.desk.chain.kv.PERIOD_S", 0.01)
    speech, pause_s = ENDLESS[name]
    with hostile(speech, pause_s, HEADS.get(name, b"")) as url:

        async def look() -> KvWatch:
            async with httpx.AsyncClient() as client:
                watch = KvWatch(client, [("native", url)])
                await asyncio.wait_for(watch.run(), 10)
                return watch

        assert asyncio.run(look()).found == {}


def test_a_share_that_is_none_is_left_out() -> None:
    page = "# TYPE vllm:kv_cache_usage_perc gauge\n" + "".join(
        f'vllm:kv_cache_usage_perc{{stage="{n}"}} {value}\n'
        for n, value in enumerate(("NaN", "+Inf", "-1", "1e308"))
    )

    async def look() -> KvWatch:
        answer = httpx.MockTransport(lambda request: httpx.Response(200, text=page))
        async with httpx.AsyncClient(transport=answer) as client:
            watch = KvWatch(client, [("native", "http://x")])
            await asyncio.wait_for(watch.run(), 10)
            return watch

    assert asyncio.run(look()).found == {}


LYING = wav(0.5)
QUESTIONS = {
    "says more than it has": (LYING[:-2000], "states 24000 bytes of samples, 22000 are there"),
    "ends in its header": (LYING[:30], "ends within its header"),
    "a rate of 0": (LYING[:24] + bytes(4) + LYING[28:], "0 Hz"),
    "a rate of 4294967295": (LYING[:24] + b"\xff" * 4 + LYING[28:], "4294967295 Hz"),
    "no channels": (LYING[:22] + bytes(2) + LYING[24:], "0 channels"),
    "frames of 0 bytes": (LYING[:32] + bytes(2) + LYING[34:], "bits"),
    "no samples": (wav(0.0), "no sound in it"),
    "a million chunks": (LYING[:12] + b"junk\0\0\0\0" * 1_000_000, "header of more than 65536 bytes"),
}


def bench(folder: Path) -> str:
    """Ask the questions of a folder; return the one line that refuses them."""
    done = CliRunner().invoke(main, ["bench", "chain", str(folder), "--native", "http://127.0.0.1:1"])
    assert done.exit_code == 2, done.output
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "Traceback" not in done.output
    return done.stderr


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_that_lies_is_refused_in_a_line(name: str, tmp_path: Path) -> None:
    content, says = QUESTIONS[name]
    (tmp_path / "q.wav").write_bytes(content)
    assert says in bench(tmp_path)


@pytest.mark.parametrize("kind", ["fifo", "folder", "device", "huge"])
def test_a_question_that_is_no_file_is_not_waited_for(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "q.wav"
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    elif kind == "device":
        file.symlink_to("/dev/zero")
    else:
        with file.open("wb") as sparse:
            sparse.truncate(1 << 40)
    said = {"folder": "Is a directory", "huge": "longer than 67108864 bytes"}.get(kind, "not a regular file")
    assert said in bench(tmp_path)
