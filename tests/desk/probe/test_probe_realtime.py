"""The probe in a realtime session: by text, by sound, speaking up, and what it refuses."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import click.testing
import pytest

from helpers.general_server import GeneralServer, Script
from helpers.general_session import add_item, begin, created, delta, done, speech
from helpers.realtime_session import spoken
from helpers.recording_server import serving
from helpers.scripted_tap import answers, read_events
from omniwatch.cli import main
from omniwatch.core.streams import StreamTable
from omniwatch.desk.probe import realtime
from omniwatch.desk.probe.target import parse
from omniwatch.desk.probe.turn import Asking
from omniwatch.media import wav
from omniwatch.settings import Settings
from omniwatch.tap import Tap

ASKED = "response.create"
CANCEL = "response.cancel"
TRUNCATE = "conversation.item.truncate"
BY_TURNS = answers(0, type="session.created", id="sess-0123456789abcdef", created=1)
COMMIT = "input_audio_buffer.commit"
CANCELLED = {"status": "cancelled", "status_details": {"type": "cancelled", "reason": "client_cancelled"}}


def probed(app: Any, *words: str) -> tuple[click.testing.Result, list[dict[str, Any]]]:
    with serving(app) as port:
        url = f"ws://127.0.0.1:{port}/v1/realtime"
        result = click.testing.CliRunner().invoke(main, ["probe", url, "--json", "--timeout=10", *words])
    return result, json.loads(result.stdout)["turns"] if result.exit_code < 2 else []


def answer(response: str, *ms: float, **ending: Any) -> Script:
    return [ASKED, begin(0, response), *(delta(0, one, response) for one in ms), done(0, response, **ending)]


def sound_file(directory: Path, rate_hz: int, seconds: float = 0.2, channels: int = 1) -> tuple[str, bytes]:
    samples = bytes(n % 251 for n in range(2 * round(rate_hz * seconds)))
    path = directory / f"{rate_hz}-{channels}.wav"
    path.write_bytes(wav.header(rate_hz, channels, len(samples)) + samples)
    return str(path), samples


@pytest.mark.parametrize("form", [{"type": "audio/pcm", "rate": 24_000}, {"type": "audio/pcmu"}, "g711_alaw"])
def test_turns_by_text_in_one_session(form):
    server = GeneralServer(
        [created(0, **speech(form)), *answer("r1", 200, 100.5), 0.05, *answer("r2", 80, 80)]
    )
    result, turns = probed(server, "--turns=2", "--text=How are you?", "--model=m")
    assert result.exit_code == 0, result.output
    times = 1 if isinstance(form, dict) and form["type"] == "audio/pcm" else 6
    assert [turn["audio_ms"] for turn in turns] == [300.5 * times, 160 * times]
    assert [turn["outcome"] for turn in turns] == ["ok", "ok"]
    asked = [said for _, said in server.heard if said["type"] == "conversation.item.create"]
    assert [said["item"]["content"] for said in asked] == [
        [{"type": "input_text", "text": "How are you?"}]
    ] * 2
    assert all("stale_ms" not in turn for turn in turns)
    update = next(said for _, said in server.heard if said["type"] == "session.update")
    assert "output" not in update["session"]["audio"], "the server says itself what it speaks"


@pytest.mark.parametrize("stated", [{}, {"audio": {"output": {"format": None}}}])
def test_a_server_that_states_no_format_is_asked_for_one(stated):
    server = GeneralServer([created(0, **stated), *answer("r1", 200)])
    result, (turn,) = probed(server, "--turns=1")
    assert result.exit_code == 0, result.output
    assert turn["audio_ms"] == 200
    update = next(said for _, said in server.heard if said["type"] == "session.update")
    assert update["session"]["audio"]["output"]["format"] == {"type": "audio/pcm", "rate": 24_000}


def test_a_question_by_sound_is_sent_whole_and_at_real_pace(tmp_path):
    file, samples = sound_file(tmp_path, 24_000, 0.5)
    server = GeneralServer([created(0), COMMIT, *answer("r1", 100)])
    result, (turn,) = probed(server, "--turns=1", f"--audio={file}")
    assert result.exit_code == 0, result.output
    pieces = [(t, said) for t, said in server.heard if said["type"] == "input_audio_buffer.append"]
    assert b"".join(base64.b64decode(said["audio"]) for _, said in pieces) == samples
    (asked_t,) = [t for t, said in server.heard if said["type"] == ASKED]
    assert asked_t - pieces[0][0] >= 0.49
    assert turn["rtt_ms"] < 400, "from when the question was put"
    update = next(said for _, said in server.heard if said["type"] == "session.update")
    assert update["session"]["audio"]["input"]["turn_detection"] is None, "the probe itself asks"


def test_a_server_by_turns_is_asked_as_0_30_wants_it(tmp_path):
    file, samples = sound_file(tmp_path, 16_000)
    end = answers(0, type="response.output_audio.done", has_audio=True)
    asked = (COMMIT, COMMIT)
    server = GeneralServer([BY_TURNS, *asked, spoken(0, 400), spoken(0, 80), end, *asked, spoken(0, 90), end])
    result, turns = probed(server, "--turns=2", f"--audio={file}", "--model=m")
    assert result.exit_code == 0, result.output
    assert [turn["audio_ms"] for turn in turns] == [480, 90]
    said = [one for _, one in server.heard]
    assert said[0]["model"] == "m"
    assert [one.get("final") for one in said if one["type"] == COMMIT] == [False, True] * 2
    assert b"".join(base64.b64decode(one["audio"]) for one in said if "audio" in one) == samples * 2


@pytest.mark.slow
@pytest.mark.parametrize("goes_on_s", [0.0, 0.3])
def test_a_server_that_goes_on_after_the_probe_spoke_up_is_told_by_probe_and_family(tmp_path, goes_on_s):
    script: list[Any] = [created(0)]
    for name in ("r1", "r2", "r3"):
        late = [0.1, delta(0, 80, name), goes_on_s - 0.1, delta(0, 80, name)] if goes_on_s else []
        script += [ASKED, begin(0, name), add_item(0, "i1", name), delta(0, 5000, name)]
        script += [CANCEL, TRUNCATE, *late, done(0, name, **CANCELLED)]
    server = GeneralServer(script)
    path = tmp_path / "events.jsonl"
    result, turns = probed(Tap(server, environ={"OMNIWATCH_EVENTS": str(path)}), "--interrupt=0.2")
    assert result.exit_code == 0, result.output
    assert [turn["outcome"] for turn in turns] == ["ok"] * 3
    assert all(turn["audio_ms"] == 5000 and turn["underrun_ms"] == 0 for turn in turns), (
        "what comes late is not heard"
    )
    spoke_up = [t for t, said in server.heard if said["type"] == CANCEL]
    ends = [t for t, said in server.sent if said["type"] == "response.done"]
    deltas = [t for t, said in server.sent if said["type"] == "response.output_audio.delta"]
    stale_ms = [
        max((t - begins) * 1000 for t in [begins, *deltas] if begins <= t < end)
        for begins, end in zip(spoke_up, ends, strict=True)
    ]
    assert min(abs(turn["stale_ms"] - ms) for turn, ms in zip(turns, stale_ms, strict=True)) < 5
    truncated = [said for _, said in server.heard if said["type"] == TRUNCATE]
    assert [one["item_id"] for one in truncated] == ["i1"] * 3
    assert all(100 <= one["audio_end_ms"] < 1000 for one in truncated), "after 80 ms of playout buffer"
    table = StreamTable(Settings())
    for event in read_events(path):
        table.apply(event)
    stale = table.totals.interruption_stale
    assert sum(stale.counts) == 3
    assert stale.sum * 1000 == pytest.approx(sum(stale_ms), abs=15), "5 ms a turn"
    assert table.totals.turns["interrupted"] == 3


class MadeUpLink:
    """A connection to a server on a clock of its own: it answers at once, and says so much more after it was told to stop."""

    stream_id = None

    def __init__(self, goes_on_s: float) -> None:
        self.t = 100.0
        self.goes_on_s = goes_on_s
        self._due: list[tuple[float, str]] = []
        self._say(0.0, created(0))

    def clock(self) -> float:
        return self.t

    def _say(self, after_s: float, step: Any) -> None:
        self._due.append((self.t + after_s, step.message["text"]))

    def send(self, timeout_s: float, **message: Any) -> None:
        if message["type"] == ASKED:
            self._say(0.3, begin(0))
            self._say(0.3, delta(0, 5000))
        elif message["type"] == CANCEL:
            for n in range(1, round(self.goes_on_s / 0.05) + 1):
                self._say(n * 0.05, delta(0, 50))
            self._say(self.goes_on_s + 0.1, done(0, **CANCELLED))

    def receive(self, timeout_s: float) -> str:
        if not self._due or self._due[0][0] > self.t + timeout_s:
            self.t += timeout_s
            raise TimeoutError
        due, text = self._due.pop(0)
        self.t = max(self.t, due)
        return text

    def allow(self, size_bytes: int) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("goes_on_s", [0.0, 0.35, 1.2])
def test_how_long_a_server_goes_on_is_told_to_5_ms(monkeypatch, goes_on_s):
    link = MadeUpLink(goes_on_s)
    monkeypatch.setattr(realtime, "open_link", lambda *_: link)
    asking = Asking("hello", interrupt_s=0.7, clock=link.clock)
    turn = realtime.RealtimeClient(parse("ws://127.0.0.1:1/v1/realtime"), asking).turn(1)
    assert turn.outcome == "ok", turn.detail
    assert turn.stale_ms == pytest.approx(goes_on_s * 1000, abs=5)
    assert turn.heard.rtt_ms == pytest.approx(300)
    assert turn.heard.audio_ms == 5000, "what comes late is not heard"


def test_an_answer_that_came_whole_is_broken_off_while_it_is_heard():
    whole = [ASKED, begin(0), add_item(0, "i1"), delta(0, 1000), done(0), TRUNCATE]
    short = [ASKED, begin(0, "r2"), delta(0, 20, "r2"), done(0, "r2")]
    server = GeneralServer([created(0), *whole, *short])
    result, turns = probed(server, "--turns=2", "--interrupt=0.2")
    assert result.exit_code == 0, result.output
    assert turns[0]["stale_ms"] == 0
    assert "stale_ms" not in turns[1], "it was over before"
    assert CANCEL not in [said["type"] for _, said in server.heard]


def test_the_table_has_a_column_for_stale_speech():
    script = [created(0), ASKED, begin(0), delta(0, 5000), CANCEL, done(0, **CANCELLED)]
    with serving(GeneralServer(script)) as port:
        url = f"ws://127.0.0.1:{port}/v1/realtime"
        result = click.testing.CliRunner().invoke(main, ["probe", url, "--turns=1", "--interrupt=0.1"])
    heading, row = result.stdout.splitlines()
    assert heading.endswith("stale ms")
    assert row.split()[-1] == "0.0"
    assert len(row) == len(heading)


def error(code: str, event: str | None) -> Any:
    return answers(
        0, type="error", event_id="e", error={"code": code, "message": "not now", "event_id": event}
    )


@pytest.mark.parametrize(
    ("script", "outcome", "detail"),
    [
        ([created(0), ASKED, error("response_already_active", "response.create.1")], "error", "not now"),
        (
            [created(0), *answer("r1", status="failed", status_details={"type": "failed"})],
            "error",
            "is failed",
        ),
        ([created(0), *answer("r1")], "silent", None),
        ([created(0), ASKED, begin(0), delta(0, 80), 1011], "cut", "the websocket was closed"),
        ([created(0, **speech({"type": "audio/opus"})), *answer("r1", 80)], "malformed", "a format"),
        ([answers(0, type="error", error={"message": "no key"})], "error", "no key"),
    ],
)
def test_what_goes_wrong_is_the_turns_outcome(script, outcome, detail):
    result, (turn,) = probed(GeneralServer(script), "--turns=1")
    assert result.exit_code == 1
    assert turn["outcome"] == outcome
    assert detail is None or detail in turn["detail"]


def test_an_error_about_something_else_ends_no_turn():
    script = [created(0), ASKED, error("unknown_parameter", "session.update.0"), *answer("r1", 80)[1:]]
    result, (turn,) = probed(GeneralServer(script), "--turns=1")
    assert result.exit_code == 0, result.output
    assert turn["audio_ms"] == 80


DUPLEX = answers(
    0, type="session.created", event_id="e", session={"id": "s" * 20, "object": "x"}, resume_token="t"
)


@pytest.mark.parametrize(
    ("greeting", "words", "said"),
    [
        (DUPLEX, [], "URL: the server speaks vLLM-Omni 0.30's duplex dialect there"),
        (BY_TURNS, [], "--audio: needed, for this server goes by turns"),
        (BY_TURNS, ["--audio=24000"], "--audio: expected 16000 Hz for this server, got 24000"),
        (BY_TURNS, ["--audio=16000"], "--model: needed, for this server goes by turns"),
        (BY_TURNS, ["--audio=16000", "--interrupt=1"], "--interrupt: this server goes by turns"),
        (created(0), ["--audio=16000"], "--audio: expected 24000 Hz for this server, got 16000"),
    ],
)
def test_options_that_do_not_fit_the_server_are_one_line_and_exit_2(tmp_path, greeting, words, said):
    files = {f"--audio={rate}": f"--audio={sound_file(tmp_path, rate)[0]}" for rate in (16_000, 24_000)}
    result, _ = probed(GeneralServer([greeting]), *(files.get(word, word) for word in words))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: {said}"), result.stderr
    assert result.stderr.count("\n") == 1


def test_a_file_that_is_no_question_is_one_line_and_exit_2(tmp_path):
    (tmp_path / "text.wav").write_text("words")
    (tmp_path / "empty.wav").write_bytes(wav.header(24_000, 1, 0))
    stereo, _ = sound_file(tmp_path, 24_000, channels=2)
    fast, _ = sound_file(tmp_path, 48_000)
    for file, url, said in (
        (tmp_path / "none.wav", "ws://127.0.0.1:1/v1/realtime", "No such file"),
        (tmp_path / "text.wav", "ws://127.0.0.1:1/v1/realtime", "not a WAV file"),
        (tmp_path / "empty.wav", "ws://127.0.0.1:1/v1/realtime", "no sound in it"),
        (stereo, "ws://127.0.0.1:1/v1/realtime", "expected 16-bit mono"),
        (fast, "ws://127.0.0.1:1/v1/realtime", "expected 16-bit mono"),
        (fast, "ws://127.0.0.1:1", "--audio: only for a realtime session"),
    ):
        result = click.testing.CliRunner().invoke(main, ["probe", url, f"--audio={file}"])
        assert result.exit_code == 2
        assert said in result.stderr
        assert result.stderr.count("\n") == 1
