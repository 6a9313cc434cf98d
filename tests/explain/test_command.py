"""`omniwatch explain`: the bad turns of a recording, newest first, as lines and as JSON."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from helpers.events import T0, asked, audio, ended
from omniwatch import events as ev
from omniwatch.cli import main
from omniwatch.desk.simulation import SCENARIOS, events
from omniwatch.explain import text


def turn(begin: float, thinking: float, number: int, stream: str = "a") -> list[ev.Event]:
    speech = [audio(begin + thinking + n / 2, stream, turn=number, dur_ms=1000) for n in range(3)]
    return [asked(begin, number, stream), *speech, ended(begin + thinking + 1, number, stream=stream)]


def starved(begin: float, number: int, stream: str = "a") -> list[ev.Event]:
    speech = [audio(begin + 0.3 + 1.6 * n, stream, turn=number, dur_ms=1000) for n in range(6)]
    return [asked(begin, number, stream), *speech, ended(begin + 9, number, stream=stream)]


NO_SAMPLES = "no samples of the device: quota, heat and memory cannot be named\n"
RECORDED = [*turn(0, 0.3, 1), *turn(20, 1.55, 2), *turn(40, 2.0, 1, "b"), *starved(70, 3)]


def recording(path: Path, *made: ev.Event) -> Path:
    path.write_bytes(b"".join(ev.encode(event) for event in made or RECORDED))
    return path


def explain(*words: object) -> Result:
    return CliRunner().invoke(main, ["explain", *map(str, words)])


def rows(done: Result) -> list[list[str]]:
    assert done.exit_code == 0, done.output
    return [line.split() for line in done.stdout.splitlines()[3:]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return recording(tmp_path / "events.jsonl")


def test_the_bad_turns_newest_first_a_line_for_each_symptom(file):
    done = explain("--file", file)
    assert done.stdout.splitlines()[0] == "3 of 4 turns judged were bad"
    assert rows(done) == [
        ["4", "1:10", "0", "starved", "pace", "mostly", "2920", "ms"],
        ["3", "0:40", "1", "late", "thinking", "seen", "1450", "ms"],
        ["2", "0:20", "0", "late", "thinking", "seen", "1000", "ms"],
    ]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("--symptom", "late"), ["0:40", "0:20"]),
        (("--cause", "pace"), ["1:10"]),
        (("--stream", 1), ["0:40"]),
        (("--symptom", "late", "--stream", 0), ["0:20"]),
        (("--cause", "network"), []),
    ],
)
def test_a_filter_leaves_what_matches(file, words, shown):
    done = explain("--file", file, *words)
    assert done.stdout.splitlines()[0] == f"3 of 4 turns judged were bad; {len(shown)} of them match"
    assert [row[1] for row in rows(done)] == shown


@pytest.mark.parametrize(("ago_s", "since", "shown"), [(80, "90s", 1), (100, "90s", 0), (5000, "-1.5h", 1)])
def test_since_leaves_the_turns_that_began_before(tmp_path, ago_s, since, shown):
    began = time.time() - ago_s - T0
    file = recording(tmp_path / "now.jsonl", *turn(began, 1.55, 1))
    assert len(rows(explain("--file", file, "--since", since))) == shown


def test_json_has_the_whole_record_and_its_verdicts_and_no_name_that_a_client_gave(tmp_path):
    made = [*turn(0, 1.55, 1, "a-name-of-a-stream"), ev.Text(t=T0 + 9, stream="a-name-of-a-stream", turn=1)]
    for event in made:
        event.turn = "a-name-of-a-turn"
    done = explain("--file", recording(tmp_path / "events.jsonl", *made), "--json")
    found = json.loads(done.stdout)
    assert (found["first_t"], found["turns_judged"], found["turns_bad"]) == (T0, 1, 1)
    (shown,) = found["turns"]
    assert [(v["symptom"], v["cause"], v["excess_ms"]) for v in shown["verdicts"]] == [
        ("late", "thinking", 1000.0)
    ]
    assert shown["verdicts"][0]["parts"] == {"thinking": 1000.0, "voice": 0.0}
    assert (shown["began_t"], shown["sent_t"], shown["sent_ms"]) == (T0, 1.55, 3000.0)
    assert "a-name" not in done.stdout


def test_the_settings_say_what_is_bad(file, tmp_path):
    config = tmp_path / "omniwatch.yaml"
    config.write_text("alerts: {rtt_page_ms: 1800}")
    done = explain("--file", file, "--symptom", "late", "--config.file", config)
    assert [row[1] for row in rows(done)] == ["0:40"]


def test_a_small_buffer_of_the_client_makes_an_overrun(tmp_path):
    file = recording(tmp_path / "events.jsonl", *turn(0, 0.3, 1))
    assert rows(explain("--file", file)) == []
    config = tmp_path / "omniwatch.yaml"
    config.write_text("streams: {client_buffer_ms: 1000}")
    done = explain("--file", file, "--config.file", config)
    assert [row[3:5] for row in rows(done)] == [["overrun", "ahead"]]


def test_of_a_live_sidecar_it_says_that_a_turn_under_way_is_not_judged_yet():
    nothing = text.Bad(text.Filter())
    assert nothing.report(None).splitlines() == [
        "0 of 0 turns judged were bad",
        "A turn that is under way is judged when its playback is over.",
    ]
    assert nothing.report(0.0) == "0 of 0 turns judged were bad\n"


def test_gzip_and_standard_input(file, tmp_path):
    packed = tmp_path / "events.jsonl.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert explain("--file", packed).stdout == explain("--file", file).stdout


def test_only_the_newest_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "SHOWN", 2)
    done = explain("--file", recording(tmp_path / "events.jsonl"))
    assert done.stdout.splitlines()[0].endswith("; the newest 2 of 3 that match are shown")
    assert [row[1] for row in rows(done)] == ["1:10", "0:40"]


@pytest.mark.parametrize(
    ("scenario", "verdict"),
    [
        ("late-answers", "late thinking seen"),
        ("reconnect-jump", "skewed cut seen"),
        ("progressive-drift", "skewed camera seen"),
        ("stall", "failed server seen"),
    ],
)
def test_a_simulated_incident_is_called_what_it_is(tmp_path, scenario, verdict):
    made = SCENARIOS[scenario]
    file = recording(tmp_path / "events.jsonl", *events(made, 1, T0, made.duration_s))
    assert verdict in {" ".join(row[3:6]) for row in rows(explain("--file", file))}


@pytest.mark.parametrize("scenario", ["steady", "two-streams"])
def test_nothing_is_bad_on_a_good_day(tmp_path, scenario):
    made = SCENARIOS[scenario]
    file = recording(tmp_path / "events.jsonl", *events(made, 1, T0, made.duration_s))
    assert rows(explain("--file", file)) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--file", "{none}"), "No such file"),
        (("--file", "{empty}"), "no event in it"),
        (("--file", "{garbage}"), "no event in it, 2 lines refused"),
        (("--file", "{none}", "--symptom", "lat"), "--symptom: expected one of late, "),
        (("--file", "{none}", "--since", "10"), "--since: expected a duration such as 90s"),
        (("--file", "{none}", "--cause", "x"), "--cause: expected a cause, one of thinking, "),
        (("--file", "{none}", "--symptom", "late", "--cause", "camera"), "--cause: expected a cause of late"),
    ],
)
def test_a_bad_input_is_one_line(tmp_path, words, said):
    names = {name: tmp_path / name for name in ("none", "empty", "garbage")}
    names["empty"].write_text("")
    names["garbage"].write_text("a\nb\n")
    done = explain(*(word.format(**names) for word in words))
    assert (done.exit_code, len(done.stderr.replace(NO_SAMPLES, "").splitlines()), done.stdout) == (2, 1, "")
    assert said in done.stderr


def test_the_course_of_one_turn(file):
    done = explain(4, "--file", file)
    lines = done.stdout.splitlines()
    assert (done.exit_code, lines[0]) == (0, "turn 4, slot 0, other, 1:10")
    assert [line.split()[0] for line in lines[1:5]] == ["thinking", "voice", "sent", "player"]
    assert lines[4].count("\u2591") > 10, "where nothing was heard"
    assert "starved: pace (mostly), 2920 ms" in lines
    assert '  what to do: omniwatch runbook CodecDrift, "pace"' in lines
    assert "What to do about pace (CodecDrift):" in lines
    assert "makes speech slower than it is heard" in done.stdout
    assert "#" not in done.stdout, "of the page that section alone"
    assert "a good turn" in explain(1, "--file", file).stdout
    assert "no judged turn 9" in explain(9, "--file", file).stderr


def test_samples_beside_the_recording_name_the_cause(file, tmp_path):
    seconds = [{"t": T0 + 19 + n, "throttled_s": 0.8 * n, "clock": 1.0} for n in range(5)]
    samples = "".join(json.dumps(sample) + "\n" for sample in seconds)
    (tmp_path / "given.jsonl").write_text(samples)
    given = explain("--file", file, "--device", tmp_path / "given.jsonl")
    assert [row[4] for row in rows(given)] == ["pace", "thinking", "quota"]
    assert NO_SAMPLES not in given.stderr
    assert NO_SAMPLES in explain("--file", file).stderr
    (tmp_path / "device.jsonl").write_text(samples)
    assert explain("--file", file).stdout == given.stdout
