"""The probe against a real server that speaks both protocols at a scripted pace."""

from __future__ import annotations

import base64
import io
import json
import socket
import threading

import click.testing
import pytest
from PIL import Image

from helpers.relay import Relay
from helpers.uvicorn_server import COMMENT, DIE, HANG, Serving, Speaker, Step, raw, speech, text, wait
from omniwatch.cli import main
from omniwatch.desk.probe import Turn, rounds
from omniwatch.desk.probe.target import parse
from omniwatch.desk.probe.turn import Asking

SLACK_MS = 400.0
"""What a busy machine may add to each of the times that are measured here."""
SCHEMES = ("http", "ws")
both = pytest.mark.parametrize("scheme", SCHEMES)


def probe(*words: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(main, ["probe", *words])


def probed(
    scheme: str, speaker: Speaker, *words: str
) -> tuple[click.testing.Result, list[dict[str, object]]]:
    """Probe a server of that application, one turn unless told otherwise; return also the turns of its JSON."""
    with Serving(speaker) as server:
        result = probe(f"{scheme}://{server.authority}", "--turns=1", "--json", *words)
    return result, json.loads(result.stdout)["turns"] if result.exit_code < 2 else []


def between(value: object, low: float) -> bool:
    assert isinstance(value, float)
    return low - 0.5 <= value <= low + SLACK_MS


@pytest.mark.slow
@both
def test_the_numbers_are_the_scripts(scheme: str) -> None:
    """The server's own times bound what a client can have seen: later than each sending, and not by much."""
    smooth = [wait(0.3), speech(200), wait(0.1), speech(400), text("words"), wait(0.1), speech(80)]
    stall = [wait(0.1), text("words"), speech(200), wait(0.8), speech(300)]
    speaker = Speaker(smooth, stall)
    result, turns = probed(scheme, speaker, "--turns=2")
    assert result.exit_code == 0, result.output
    for turn, spoken, late_ms in zip(turns, speaker.spoken, (0.0, 520.0), strict=True):
        assert turn["outcome"] == "ok"
        assert between(turn["rtt_ms"], (spoken.chunks[0][0] - spoken.asked_t) * 1000.0)
        assert turn["audio_ms"] == pytest.approx(sum(ms for _, ms in spoken.chunks))
        assert turn["chunks"] == len(spoken.chunks)
        underrun_ms = turn["underrun_ms"]
        assert isinstance(underrun_ms, float)
        assert abs(underrun_ms - late_ms) < SLACK_MS
        assert turn["drift_ms"] == pytest.approx(-underrun_ms, abs=1.0)


def test_the_question_is_a_chat_with_speech() -> None:
    speaker = Speaker([speech(80)])
    probed("http", speaker, "--text=How far?", "--header=Authorization: Bearer x", "--turns=2")
    probed("http", speaker, "--model=other")
    assert [question["model"] for question in speaker.questions] == ["tiny", "tiny", "other"]
    question, sent = speaker.questions[0], speaker.headers[0]
    assert question["messages"] == [{"role": "user", "content": "How far?"}]
    assert question["modalities"] == ["text", "audio"]
    assert question["stream"] is True
    assert sent["authorization"] == "Bearer x"
    names = [headers["x-omni-stream"] for headers in speaker.headers]
    assert names[0] == names[1] != names[2]


def test_the_picture_is_shown_at_its_pace() -> None:
    speaker = Speaker([wait(0.5), speech(80)])
    probed("ws", speaker, "--fps=20", "--text=What is this?")
    assert [question["text"] for question in speaker.questions] == ["What is this?"]
    pts = [frame["pts_ms"] for frame in speaker.frames]
    assert len(pts) >= 8
    for number, pts_ms in enumerate(pts):
        assert between(pts_ms, number * 50.0)
    picture = Image.open(io.BytesIO(base64.b64decode(speaker.frames[0]["data"])))
    picture.load()
    assert (picture.format, picture.size, picture.getextrema()) == ("JPEG", (64, 64), (128, 128))


@pytest.mark.slow
@both
def test_without_json_it_is_a_table_that_says_what_was_not_good(scheme: str) -> None:
    with Serving(Speaker([speech(500)], [wait(1.0), speech(500)])) as server:
        result = probe(f"{scheme}://{server.authority}", "--turns=2", "--max-rtt-ms=999")
    lines = result.stdout.splitlines()
    assert lines[0].split("  ")[-1].strip() == "drift ms"
    assert [line.split()[:2] for line in lines[1:3]] == [["1", "ok"], ["2", "ok"]]
    assert len({len(line) for line in lines[:3]}) == 1
    assert lines[3].startswith("turn 2: first audio after 1")
    assert lines[3].endswith(" ms, past 999 ms")
    assert result.exit_code == 1


@both
@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ("--max-rtt-ms=100", 1),
        ("--max-rtt-ms=9000", 0),
        ("--max-underrun-ms=100", 1),
        ("--max-underrun-ms=9000", 0),
        ("--max-drift-ms=100", 1),
        ("--max-drift-ms=9000", 0),
    ],
)
@pytest.mark.slow
def test_past_a_limit_the_exit_code_is_1(scheme: str, limit: str, code: int) -> None:
    result, turns = probed(scheme, Speaker([wait(0.2), speech(80), wait(0.4), speech(80)]), limit)
    assert [turn["outcome"] for turn in turns] == ["ok"]
    assert result.exit_code == code
    assert len(json.loads(result.stdout)["exceeded"]) == code


NO_SPEECH: list[tuple[list[Step], str, str | None]] = [
    ([text("only words")], "silent", None),
    ([raw("{half a message")], "malformed", "{half a message"),
    ([raw('["no object"]')], "malformed", "Expected `object`, got `array`"),
    ([COMMENT, HANG], "timeout", "nothing new for 2 s"),
    ([*[COMMENT, wait(0.1)] * 50], "timeout", "nothing new for 2 s"),
    ([DIE], "cut", None),
]


@both
@pytest.mark.parametrize(("script", "outcome", "detail"), NO_SPEECH)
@pytest.mark.slow
def test_an_answer_without_speech_is_told_apart(
    scheme: str, script: list[Step], outcome: str, detail: str | None
) -> None:
    result, turns = probed(scheme, Speaker(script), "--timeout=2")
    assert result.exit_code == 1
    assert turns[0]["outcome"] == outcome
    assert turns[0]["rtt_ms"] is None
    assert detail is None or detail in str(turns[0]["detail"])


@pytest.mark.parametrize(
    ("scheme", "script", "detail"),
    [
        ("http", [raw('{"error": {"message": "out of memory"}}')], "out of memory"),
        ("ws", [raw('{"type": "error", "message": "Query processing failed"}'), HANG], "Query processing"),
    ],
)
def test_an_error_of_the_server_is_said(scheme: str, script: list[Step], detail: str) -> None:
    result, turns = probed(scheme, Speaker([speech(80), *script]))
    assert (result.exit_code, turns[0]["outcome"]) == (1, "error")
    assert detail in str(turns[0]["detail"])


def test_an_error_about_one_message_does_not_end_a_turn() -> None:
    script = [raw('{"type": "error", "message": "Unknown type"}'), speech(80)]
    assert probed("ws", Speaker(script))[1][0]["outcome"] == "ok"


@pytest.mark.parametrize(
    ("scheme", "speaker", "outcome", "detail"),
    [
        ("http", Speaker([text("no")], status=401), "error", "401 Unauthorized"),
        ("http", Speaker([speech(80)], kind="application/json"), "malformed", "got application/json"),
        ("ws", Speaker([speech(80)], status=403), "error", "403"),
    ],
)
def test_a_refusal_is_said(scheme: str, speaker: Speaker, outcome: str, detail: str) -> None:
    result, turns = probed(scheme, speaker)
    assert (result.exit_code, turns[0]["outcome"]) == (1, outcome)
    assert detail in str(turns[0]["detail"])


@both
def test_a_server_that_dies_in_the_middle_of_a_turn_is_a_cut(scheme: str) -> None:
    """What was heard until then is told, and the next turn begins anew."""
    speaker = Speaker([speech(80), wait(0.1), DIE], [speech(160)])
    result, turns = probed(scheme, speaker, "--turns=2")
    assert result.exit_code == 1
    assert [(turn["outcome"], turn["audio_ms"]) for turn in turns] == [("cut", 80.0), ("ok", 160.0)]


@both
def test_a_connection_that_is_reset_is_a_cut(scheme: str) -> None:
    speaker = Speaker([speech(80), HANG])
    with Serving(speaker) as server, Relay(server.port) as relay:
        client = rounds.open_client(parse(f"{scheme}://127.0.0.1:{relay.port}"), Asking("count"))
        turns: list[Turn] = []
        turning = threading.Thread(target=lambda: turns.append(client.turn(1)))
        turning.start()
        while not (speaker.spoken and speaker.spoken[0].chunks):
            turning.join(0.02)
        turning.join(0.2)
        relay.cut()
        turning.join()
        client.close()
    assert (turns[0].outcome, turns[0].heard.audio_ms) == ("cut", 80.0)


@pytest.mark.slow
@both
def test_a_delay_on_the_way_is_in_the_time_to_first_speech(scheme: str) -> None:
    speaker = Speaker([speech(80)])
    with Serving(speaker) as server, Relay(server.port, up_ms=150, down_ms=250) as relay:
        result = probe(f"{scheme}://127.0.0.1:{relay.port}", "--turns=1", "--json")
    assert between(json.loads(result.stdout)["turns"][0]["rtt_ms"], 400.0)


@both
def test_what_is_no_http_at_all_is_malformed(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 mail.example ESMTP\r\n")

        answering = threading.Thread(target=answer)
        answering.start()
        address = f"{scheme}://127.0.0.1:{server.getsockname()[1]}"
        result = probe(address, "--turns=1", "--json", "--model=tiny")
        answering.join()
    assert result.exit_code == 1
    assert json.loads(result.stdout)["turns"][0]["outcome"] == "malformed"
