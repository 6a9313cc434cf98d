"""Every other answer is broken off: what was asked right after is measured apart, and the server's work was really ended."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click.testing
import httpx
import pytest

from helpers.made_up_servers import DONE, Made, Reply, pcm, run, speech, stream, text, wav
from helpers.scripted_tap import CHAT, body, response
from helpers.uvicorn_server import Serving
from omniwatch.cli import main
from omniwatch.desk.chain import Result
from omniwatch.desk.chain import results as files
from omniwatch.desk.chain.calls import Server
from omniwatch.desk.chain.figures import summary
from omniwatch.desk.chain.questions import Asked
from omniwatch.desk.chain.session import Wanted, measure
from omniwatch.desk.chain.tables import terminal

QUESTIONS = [Asked(f"q{n}", wav(1.0), 1.0) for n in range(3)]
PARTS = ("native", "asr", "llm", "tts")
INTERRUPT_S = 0.35
FIRST_S = {"native": 0.3, "cascade": 0.85}
"""Until the first speech of an answer that nothing disturbs."""
LATER_S = 0.25
"""By how much an answer is later that follows an interruption."""
EXACT = 1e-6


class Busy:
    """A native model and a voice, each of which is slower where the answer before was broken off."""

    def __init__(self) -> None:
        self.asked = {"native": 0, "tts": 0}

    def native(self, request: httpx.Request, asked: Any) -> Reply:
        self.asked["native"] += 1
        late_s = 0.0 if self.asked["native"] % 2 else LATER_S
        pieces = [(0.2, speech(wav(0.2)))] * 6
        return stream((0.1 + late_s, text("Light.", "text")), *pieces, (0.0, DONE))

    def tts(self, request: httpx.Request, asked: Any) -> Reply:
        self.asked["tts"] += 1
        late_s = 0.0 if self.asked["tts"] % 2 else LATER_S
        return Reply("audio/pcm", [(0.15 + late_s, pcm(0.2)), *[(0.2, pcm(0.2))] * 5])

    def transport(self) -> Made:
        llm = stream((0.3, text("Light scatters. ")), (0.0, DONE))
        asr = Reply("application/json", [(0.4, b'{"text": "why"}')])
        return Made(native=self.native, tts=self.tts, asr=lambda *_: asr, llm=lambda *_: llm)


def measured(**further: Any) -> Result:
    servers = {part: Server(part, f"http://{part}") for part in PARTS}
    wanted = Wanted(servers, QUESTIONS, **{"turns": 40, "warmup": 0, "interrupt_s": INTERRUPT_S, **further})
    transport = Busy().transport()
    return run(lambda clock: measure(wanted, clock=clock, began="", machine={}, transport=transport))


def test_what_is_asked_after_an_interruption_is_measured_beside_what_nothing_disturbed() -> None:
    result = measured()
    for chain, first_s in FIRST_S.items():
        turns = [turn for turn in result.turns if turn.chain == chain]
        assert [turn.is_broken_off for turn in turns] == [True, False] * 20
        assert [turn.follows_break for turn in turns] == [False, True] * 20
        assert {turn.outcome for turn in turns} == {"ok"}
        for broken, after in zip(turns[::2], turns[1::2], strict=True):
            assert broken.first_audio_s == pytest.approx(first_s, abs=EXACT)
            assert broken.end_s == pytest.approx(first_s + INTERRUPT_S, abs=EXACT)
            assert broken.audio_s == pytest.approx(0.4), "two pieces were there by then"
            assert after.first_audio_s == pytest.approx(first_s + LATER_S, abs=EXACT)
            assert after.start_s == pytest.approx(broken.start_s + first_s + INTERRUPT_S, abs=EXACT)
            assert after.audio_s == pytest.approx(1.2)
    percentiles = {one["chain"]: one["percentiles"] for one in summary(result)}
    for chain, first_s in FIRST_S.items():
        for name, value in (("first_audio_s", first_s), ("first_audio_after_break_s", first_s + LATER_S)):
            median = percentiles[chain][name]["p50"]
            assert (median["n"], median["value"]) == (20, pytest.approx(value, abs=EXACT))
            assert None not in (median["low"], median["high"])
        assert percentiles[chain]["end_s"]["p50"]["n"] == 20, "of the answers that were heard to their end"


def test_the_table_has_both_and_says_what_was_done() -> None:
    lines = terminal(measured()).splitlines()
    (undisturbed,) = [one for one in lines if one.startswith("  first audio (s)") and "P50" in one]
    (after,) = [
        one for one in lines if one.startswith("  first audio after an interruption (s)") and "P50" in one
    ]
    assert [one.split()[0] for one in undisturbed.split("P50")[1].split("]")[:2]] == ["0.300", "0.850"]
    assert [one.split()[0] for one in after.split("P50")[1].split("]")[:2]] == ["0.550", "1.100"]
    assert any("broken off 0.35 s after its first speech" in line for line in lines)
    plain = terminal(measured(interrupt_s=None))
    assert "interruption" not in plain
    assert "broken off" not in plain


def test_several_clients_each_break_off_every_other_answer() -> None:
    result = measured(levels=[2], turns=17)
    for chain in FIRST_S:
        turns = [turn for turn in result.turns if turn.chain == chain]
        assert sum(turn.is_broken_off for turn in turns) == sum(turn.follows_break for turn in turns) == 8
        assert len(turns) == 17, "the last one has none after it, and is heard to its end"


def test_an_answer_that_is_over_by_then_is_not_broken_off() -> None:
    result = measured(interrupt_s=5.0)
    assert not any(turn.is_broken_off or turn.follows_break for turn in result.turns)
    assert {turn.outcome for turn in result.turns} == {"ok"}


def test_a_real_server_sees_its_client_go(tmp_path: Path) -> None:
    left_after: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] != CHAT:
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body"})
            return
        while (await receive()).get("more_body"):
            pass
        await send(response(0).message)
        leaving = asyncio.ensure_future(receive())
        for pieces in range(8):
            # A piece comes at the very moment at which the client breaks off.
            if (await asyncio.wait({leaving}, timeout=0.05))[0]:
                left_after.append(pieces)
                return
            await send(body(0, speech(wav(0.1))).message)
        leaving.cancel()
        await send(body(0, DONE, more=False).message)

    (tmp_path / "q.wav").write_bytes(wav(0.2))
    out = tmp_path / "out.json"
    with Serving(app, lifespan="off") as server:
        words = ["--native", f"http://{server.authority}", "--turns=4", "--warmup=0", "--interrupt=0.1"]
        done = click.testing.CliRunner().invoke(
            main, ["bench", "chain", str(tmp_path), *words, "--out", str(out)]
        )
    assert done.exit_code == 0, done.output
    assert [turn.is_broken_off for turn in files.read(out).turns] == [True, False] * 2
    assert len(left_after) == 2
    assert json.loads(out.read_text())["settings"]["interrupt_s"] == 0.1
