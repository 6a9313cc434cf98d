"""Turns with made-up servers of known delays: every figure is exact on their clock, every failure is what it is."""

from __future__ import annotations

import gzip
import itertools
import random
from typing import Any

import httpx
import msgspec
import pytest

from helpers.asgi import heard
from helpers.made_up_servers import (
    DONE,
    RATE_HZ,
    Made,
    Reply,
    Script,
    Step,
    always,
    pcm,
    run,
    speech,
    stream,
    text,
    usage,
    wav,
)
from helpers.paths import DATA
from omniwatch.desk.chain import ChainError, Result, Turn
from omniwatch.desk.chain.calls import Server
from omniwatch.desk.chain.figures import summary
from omniwatch.desk.chain.questions import Asked
from omniwatch.desk.chain.session import Wanted, measure
from omniwatch.desk.chain.tables import terminal

QUESTIONS = [Asked(f"q{n}", wav(1.0), 1.0, "why is the sky blue") for n in range(3)]
EXACT = 1e-6


def measured(transport: Made, parts: tuple[str, ...], **further: Any) -> Result:
    servers = {part: Server(part, f"http://{part}") for part in parts}
    wanted = Wanted(servers, QUESTIONS, **{"turns": 1, "warmup": 0, **further})
    return run(
        lambda clock: measure(wanted, clock=clock, began="2026-01-01", machine={}, transport=transport)
    )


def native_turn(*steps: Step, **further: Any) -> Turn:
    (turn,) = measured(Made(native=always(stream(*steps))), ("native",), **further).turns
    return turn


GOOD_LLM = stream(
    (0.1, text("Light")), (0.2, text(" scatters. ")), (0.3, text("Blue most.")), (0.0, usage(6) + DONE)
)
GOOD_ASR = Reply("application/json", [(0.4, b'{"text": " Why is the sky blue? "}')])
GOOD_TTS = Reply("audio/pcm;rate=24000", [(0.15, pcm(0.5)), (0.1, pcm(0.5))])


def cascade_turn(asr: Reply = GOOD_ASR, llm: Reply = GOOD_LLM, tts: Reply = GOOD_TTS, **further: Any) -> Turn:
    made = Made(asr=always(asr), llm=always(llm), tts=always(tts))
    (turn,) = measured(made, ("asr", "llm", "tts"), **further).turns
    return turn


def test_the_native_turn_is_timed_exactly() -> None:
    turn = native_turn(
        (0.25, text("Light", "text")),
        (0.10, text(" scatters. ", "text")),
        (0.15, speech(wav(0.4))),
        (0.90, speech(wav(0.3))),
        (0.05, usage(9) + DONE),
    )
    assert turn.outcome == "ok"
    assert turn.first_token_s == pytest.approx(0.25, abs=EXACT)
    assert turn.first_sentence_s == pytest.approx(0.35, abs=EXACT)
    assert turn.first_audio_s == pytest.approx(0.50, abs=EXACT)
    assert turn.end_s == pytest.approx(1.45, abs=EXACT)
    assert turn.audio_s == pytest.approx(0.7)
    # Heard from 0.58 (80 ms of buffer) to 0.98; the next piece came at 1.40.
    assert turn.underrun_s == pytest.approx(0.42, abs=EXACT)
    assert (turn.tokens, turn.text_s) == (9, pytest.approx(0.1, abs=EXACT))


def test_a_real_servers_answer_is_counted_to_the_sample() -> None:
    """As vLLM-Omni 0.30 streamed it."""
    recorded = gzip.decompress((DATA / "wire" / "chat-audio.sse.gz").read_bytes())
    samples, words = heard(recorded)
    events = recorded.split(b"\n\n")[:-1]
    first = next(n for n, event in enumerate(events) if b'"modality":"audio"' in event)
    turn = native_turn(*((0.02, event + b"\n\n") for event in events))
    assert (turn.outcome, turn.text, turn.tokens) == ("ok", words, 24)
    assert turn.first_audio_s == pytest.approx(0.02 * (first + 1), abs=EXACT)
    assert turn.audio_s == pytest.approx(len(samples) / 2 / RATE_HZ, abs=EXACT)


def test_the_cascade_turn_is_timed_exactly() -> None:
    turn = cascade_turn()
    assert turn.outcome == "ok"
    assert turn.transcript == "Why is the sky blue?"
    assert turn.transcript_s == pytest.approx(0.4, abs=EXACT)
    assert turn.first_token_s == pytest.approx(0.5, abs=EXACT)
    assert turn.first_sentence_s == pytest.approx(0.7, abs=EXACT)
    assert turn.first_audio_s == pytest.approx(0.85, abs=EXACT)
    # The second sentence is whole at 1.0 and is spoken from then on, after the first.
    assert turn.end_s == pytest.approx(1.25, abs=EXACT)
    assert turn.audio_s == pytest.approx(2.0)
    assert turn.underrun_s == 0
    assert turn.tokens == 6


def test_a_question_takes_its_picture_where_the_chain_takes_one() -> None:
    asked = Asked("p", wav(1.0), 1.0, None, b"jpeg", "image/jpeg")
    made = Made(
        native=always(stream((0.1, speech(wav(0.1)) + DONE))),
        asr=always(GOOD_ASR),
        llm=always(GOOD_LLM),
        tts=always(GOOD_TTS),
    )
    servers = {part: Server(part, f"http://{part}") for part in ("native", "asr", "llm", "tts")}
    for pictures in (True, False):
        made.asked.clear()
        wanted = Wanted(servers, [asked], turns=1, warmup=0, pictures=pictures)
        run(lambda clock, w=wanted: measure(w, clock=clock, began="", machine={}, transport=made))
        sent = {name: body for name, body in made.asked if isinstance(body, dict)}
        kinds = [part["type"] for part in sent["native"]["messages"][0]["content"]]
        assert kinds == ["image_url", "input_audio"]
        content = sent["llm"]["messages"][0]["content"]
        assert ([part["type"] for part in content] if pictures else content) == (
            ["image_url", "text"] if pictures else "Why is the sky blue?"
        )


SAID = (0.1, text("Light scatters.", "text"))
BAD_NATIVE = {
    "dies in the middle": ([SAID, (0.1, speech(wav(0.2))), (0.1, httpx.ReadError("reset"))], "cut", "reset"),
    "ends early": ([SAID, (0.1, speech(wav(0.2)))], "cut", "without data: [DONE]"),
    "text only": ([SAID, (0.1, DONE)], "silent", "without speech"),
    "half a WAV": ([(0.1, speech(wav(0.2)[:-2400])), (0.1, DONE)], "cut", "half a WAV: 2400 bytes fewer"),
    "half a WAV, then another": (
        [(0.1, speech(wav(0.2)[:-2400])), (0.1, speech(wav(0.2)) + DONE)],
        "cut",
        "half a WAV",
    ),
    "a header cut off": ([(0.1, speech(wav(0.2)[:20])), (0.1, DONE)], "cut", "within its WAV header"),
    "lies about its rate": (
        [(0.1, speech(wav(0.2, 24_000), 48_000)), (0.1, DONE)],
        "malformed",
        "says 48000 Hz, its WAV header 24000 Hz",
    ),
    "a header against itself": (
        [(0.1, speech(wav(0.2)[:28] + b"\1\0\0\0" + wav(0.2)[32:])), (0.1, DONE)],
        "malformed",
        "24000 Hz and 1 bytes a second",
    ),
    "a rate that is none": ([(0.1, speech(pcm(0.1), 7)), (0.1, DONE)], "malformed", "7 Hz"),
    "states an error": ([(0.1, b'data: {"error": {"message": "no memory"}}\n\n')], "error", "no memory"),
    "no JSON": ([(0.1, b"data: {\n\n")], "malformed", ""),
    "stands still": ([SAID, (40.0, DONE)], "timeout", "nothing new for 30 s"),
    "comments only": ([SAID, *[(5.0, b": ping\n\n")] * 9], "timeout", "nothing new for 30 s"),
    "refuses": ([(0.0, httpx.ConnectError("refused"))], "unreachable", "refused"),
}


@pytest.mark.parametrize(("steps", "outcome", "detail"), BAD_NATIVE.values(), ids=BAD_NATIVE.keys())
def test_a_native_failure_is_counted_as_what_it_is(steps: list[Step], outcome: str, detail: str) -> None:
    turn = native_turn(*steps)
    assert turn.outcome == outcome
    assert detail in (turn.detail or "")


def test_a_failed_turn_keeps_what_came_before() -> None:
    turn = native_turn(*BAD_NATIVE["dies in the middle"][0])
    assert (turn.first_audio_s, turn.audio_s) == (pytest.approx(0.2), pytest.approx(0.2))
    assert turn.end_s == pytest.approx(0.3)


BAD_PARTS = {
    "ASR hears nothing": ({"asr": Reply("application/json", [(0.1, b'{"text": " "}')])}, "asr", "silent"),
    "ASR answers no JSON": ({"asr": Reply("text/plain", [(0.1, b"hello")])}, "asr", "malformed"),
    "ASR refuses": ({"asr": Reply("application/json", [(0.1, b"{}")], 503)}, "asr", "error"),
    "LLM dies": ({"llm": stream((0.1, text("Light")), (0.1, httpx.ReadError("reset")))}, "llm", "cut"),
    "LLM is no stream": ({"llm": Reply("application/json", [(0.1, b"{}")])}, "llm", "malformed"),
    "TTS answers text": ({"tts": Reply("text/html", [(0.1, b"<html>")])}, "tts", "malformed"),
    "TTS sends half a WAV": ({"tts": Reply("audio/wav", [(0.1, wav(1.0)[:9000])])}, "tts", "cut"),
    "TTS lies": ({"tts": Reply("audio/wav;rate=16000", [(0.1, wav(1.0))])}, "tts", "malformed"),
    "TTS stands still": ({"tts": Reply("audio/pcm", [(0.1, pcm(0.1)), (60, b"")])}, "tts", "timeout"),
    "TTS dies": (
        {"tts": Reply("audio/pcm", [(0.1, httpx.RemoteProtocolError("peer closed"))])},
        "tts",
        "cut",
    ),
}


@pytest.mark.parametrize(("bad", "part", "outcome"), BAD_PARTS.values(), ids=BAD_PARTS.keys())
def test_a_failure_of_a_part_is_counted_there(bad: dict[str, Reply], part: str, outcome: str) -> None:
    turn = cascade_turn(**bad)
    assert (turn.part, turn.outcome) == (part, outcome), turn.detail


def test_speech_in_pieces_that_cut_a_header_and_a_sample_is_whole() -> None:
    whole = wav(0.5)
    cuts = [0, 3, 11, 30, 45, 46, 9001, len(whole)]
    pieces = [whole[a:b] for a, b in itertools.pairwise(cuts)]
    turn = cascade_turn(tts=Reply("audio/wav", [(0.1, piece) for piece in pieces]))
    assert turn.outcome == "ok"
    assert turn.audio_s == pytest.approx(1.0)
    # The first piece with a whole sample is the fifth.
    assert turn.first_audio_s == pytest.approx(0.7 + 0.5)


def test_a_server_that_is_not_there_ends_the_run() -> None:
    class Gone(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            raise httpx.ConnectError("Connection refused")

    with pytest.raises(ChainError, match=r"--native http://native: cannot reach it: Connection refused"):
        measured(Gone(), ("native",))  # type: ignore[arg-type]


def drawn(seed: int) -> Made:
    """Servers whose delays, stalls and failures are drawn."""
    draw = random.Random(seed)

    def native(request: httpx.Request, asked: Any) -> Reply:
        steps: list[Step] = [(draw.expovariate(4), text("Blue. ", "text"))]
        steps += [(draw.expovariate(5), speech(wav(0.3))) for _ in range(5)]
        if draw.random() < 0.1:
            return stream(*steps, (0.1, httpx.ReadError("reset")))
        return stream(*steps, (0.0, usage(5) + DONE))

    def tts(request: httpx.Request, asked: Any) -> Reply:
        return Reply("audio/pcm", [(draw.expovariate(6), pcm(0.3)) for _ in range(3)])

    def asr(request: httpx.Request, asked: Any) -> Reply:
        return Reply("application/json", [(draw.expovariate(3), b'{"text": "why is the sky green"}')])

    scripts: dict[str, Script] = {"native": native, "asr": asr, "llm": always(GOOD_LLM), "tts": tts}
    return Made(**scripts)


@pytest.mark.slow
def test_one_seed_gives_the_same_result_twice() -> None:
    parts, turns = ("native", "asr", "llm", "tts"), 40
    first, second, other = (
        measured(drawn(7), parts, turns=turns, warmup=3, levels=[1, 2, 4], seed=seed) for seed in (5, 5, 6)
    )
    assert msgspec.json.encode(first) == msgspec.json.encode(second)
    assert terminal(first) == terminal(second)
    assert msgspec.json.encode(first) != msgspec.json.encode(other)
    assert len(first.turns) == 2 * 3 * turns
    figures = {(one["chain"], one["concurrency"]): one for one in summary(first)}
    assert figures["native", 1]["outcomes"].keys() == {"cut"}
    assert figures["cascade", 4]["percentiles"]["first_audio_s"]["p99"]["high"] is None
    # Clients at once share no server here: four are four times as fast.
    fast, slow = (figures["cascade", n]["audio_s_per_s"] for n in (4, 1))
    assert fast / slow == pytest.approx(4, rel=0.35)


def test_turns_that_never_spoke_stand_behind_all_others() -> None:
    made = Made(native=always(stream(SAID, (0.1, DONE))))
    result = measured(made, ("native",), turns=10)
    (figures,) = summary(result)
    assert figures["percentiles"]["first_audio_s"]["p50"]["value"] == "never"
    assert figures["failed"] == 10
    assert "never" in terminal(result)
