"""What a backtest says: in words, as JSON, of two rule sets, and as a picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from helpers.backtest_command import record, run
from omniwatch import events as ev
from omniwatch.desk import plotting
from omniwatch.desk.backtest import picture, routes
from omniwatch.desk.backtest.compare import compare, pairs
from omniwatch.desk.backtest.json_report import differences, facts
from omniwatch.desk.backtest.rules import Rule, Standing
from omniwatch.desk.backtest.run import Alert, Findings, Side, Verdict, sent_messages
from omniwatch.desk.backtest.states import Episode, Series
from omniwatch.desk.backtest.text_report import comparison, report
from omniwatch.settings import Settings

T0 = 1_700_000_000.0
TARGET = {"job": "omniwatch", "instance": "a:1", "device": "orin"}
ROUTING = routes.read(
    """
    route:
      receiver: page
      routes: [{receiver: beat, matchers: ['severity="none"']}]
      group_by: [device]
      group_wait: 0s
      group_interval: 20s
    receivers: [{name: page, webhook_configs: [{}]}, {name: beat}]
    """,
    "{}",
)
OF_STREAM = tuple(sorted({**TARGET, "stream": "0", "severity": "page"}.items()))


def episode(pending: float, firing: float | None, over: float | None, worst: float = 70) -> Episode:
    """An episode by seconds into the recording."""
    at = [None if t is None else T0 + t for t in (pending, firing, over)]
    return Episode(T0 + pending, worst, T0 + pending + 5, at[1], at[2])


def rule(name: str, severity: str = "page") -> Rule:
    return Rule(name, "x > 1", 5, "x.yaml", "g", 15, labels={"severity": severity})


def verdict(name: str, *episodes: Episode, severity: str = "page") -> Verdict:
    labels = tuple(sorted({**dict(OF_STREAM), "severity": severity}.items()))
    alerts = [Alert(labels, list(episodes))] if episodes else []
    return Verdict(rule(name, severity), Standing.JUDGED, [], alerts)


def findings(*verdicts: Verdict, name: str = "mine") -> Findings:
    side = Side(name, Settings(), [one.rule for one in verdicts], [TARGET], ROUTING)
    curves = {
        "omni_codec_drift_ms": [Series({"stream": "0"}, [(T0 + t, float(t)) for t in (1, 2, 3, 50, 51)])],
        "omni_token_rtt_ms": [Series({"stream": "0"}, [(T0 + t, 500.0) for t in range(90)])],
    }
    sent = sent_messages(ROUTING, verdicts, T0 + 100)
    return Findings(side, T0, T0 + 100, 1234, {"json": 2, "utf8": 0}, 1, 105, list(verdicts), curves, sent)


WHOLE = findings(
    verdict("Calm"),
    verdict("Slow", episode(10, None, 20, 61), severity="ticket"),
    verdict("Drift", episode(10, None, 20, 61), episode(30, 45, 70, 99.5), episode(90, None, None)),
    Verdict(rule("Hot"), Standing.MISSING, ["jetson_throttle_alert"], []),
    Verdict(rule("Down"), Standing.ASSUMED, ["up"], []),
    Verdict(rule("Broken"), Standing.JUDGED, [], [], "many-to-many matching not allowed"),
    verdict("Beat", episode(-5, -5, None, 1), severity="none"),
)


def test_the_report_tells_apart_what_fired_was_silent_and_cannot_be_told():
    assert report(WHOLE) == (
        "1234 events, 1:40 from 2023-11-14 22:13:20 UTC; 105 scrapes, one each 1 s; 7 alert rules; "
        "2 lines refused: json; 1 event lost\n"
        "\n"
        "page:\n"
        '  Drift  stream="0"\n'
        "      pending 0:30, firing 0:45 to 1:10 (25 s), worst 99.5 at 0:35\n"
        "      pending 1 time without firing (10 s), pending since 1:30 at the end, worst 70 at 1:35\n"
        "\n"
        "ticket:\n"
        '  Slow  stream="0"\n'
        "      pending 1 time without firing (10 s), worst 61 at 0:15\n"
        "\n"
        "none:\n"
        '  Beat  stream="0"\n'
        "      firing 0:00, still at the end, worst 1 at 0:00\n"
        "\n"
        "sent to page: 1 incident, 2 messages\n"
        "  0:45  firing Drift\n"
        "  1:25  resolved Drift\n"
        "\n"
        "silent:\n"
        "  Calm\n"
        "\n"
        "not in the recording: 1 rule (--verbose names them)\n"
        "\n"
        "not told, as all that is scraped is taken to be up and the sidecar in good health:\n"
        "  Down\n"
        "\n"
        "Prometheus refuses Broken: many-to-many matching not allowed\n"
    )


def test_a_long_list_of_what_the_recording_lacks_is_folded_and_named_when_asked_for():
    rules = [Verdict(rule(f"Hot{n}"), Standing.MISSING, ["jetson_throttle_alert"], []) for n in range(22)]
    partly = [Verdict(rule(f"Part{n}"), Standing.JUDGED, ["node_load1"], []) for n in range(3)]
    found = findings(*rules, *partly)
    brief, whole = report(found), report(found, verbose=True)
    assert "Hot1" not in brief
    assert "node_load1" not in brief
    assert "\nnot in the recording: 22 rules (--verbose names them)\n" in brief
    assert "\nin part not in the recording: 3 rules (--verbose names them)\n" in brief
    assert all(f"Hot{n} (jetson_throttle_alert)" in " ".join(whole.split()) for n in range(22))
    assert all(f"Part{n} (node_load1)" in whole for n in range(3))


def test_the_json_holds_every_rule_with_its_outcome():
    told = json.loads(json.dumps(facts(WHOLE)))
    assert [one["outcome"] for one in told["rules"]] == [
        "silent",
        "pending",
        "fired",
        "missing",
        "assumed",
        "refused",
        "fired",
    ]
    drift = told["rules"][2]
    assert drift["alerts"][0]["labels"] == dict(OF_STREAM)
    assert drift["alerts"][0]["episodes"][1] == {
        "pending_t": T0 + 30,
        "firing_t": T0 + 45,
        "resolved_t": T0 + 70,
        "worst": 99.5,
        "worst_t": T0 + 35,
    }
    assert told["rules"][3]["metrics"] == ["jetson_throttle_alert"]
    assert told["target"] == TARGET
    assert told["notifications"]["receivers"] == {"page": {"incidents": 1, "messages": 2}}
    began, over = told["notifications"]["messages"]
    assert began == {
        "t": T0 + 45,
        "receiver": "page",
        "status": "firing",
        "group": {"device": "orin"},
        "firing": [{**dict(OF_STREAM), "alertname": "Drift"}],
        "resolved": [],
        "begins_incident": True,
        "repeats": False,
    }
    assert (over["t"], over["status"], over["begins_incident"]) == (T0 + 85, "resolved", False)


@pytest.mark.parametrize(
    ("value", "text"), [(float("inf"), "+Inf"), (float("-inf"), "-Inf"), (float("nan"), "NaN")]
)
def test_what_json_has_no_number_for_is_text(value, text):
    told = facts(findings(verdict("A", episode(0, 5, 9, value))))
    assert told["rules"][0]["alerts"][0]["episodes"][0]["worst"] == text


def test_two_rule_sets_are_compared_firing_by_firing():
    mine = findings(
        verdict("Sooner", episode(0, 20, 50)),
        verdict("Later", episode(0, 20, 50), episode(60, 75, None)),
        verdict("Same", episode(0, 20, 50)),
        verdict("Vain", episode(0, None, 50)),
        verdict("Old", episode(0, 20, 30)),
    )
    theirs = findings(
        verdict("Sooner", episode(0, 5, 50)),
        verdict("Later", episode(0, 30, 50)),
        verdict("Same", episode(5, 20, 60)),
        verdict("Vain", episode(0, 15, 50)),
        verdict("New"),
        name="theirs",
    )
    found = compare(mine, theirs)
    assert [(one.rule, one.later_s) for one in found.firings] == [
        ("Sooner", -15),
        ("Vain", None),
        ("Later", 10),
        ("Same", 0),
        ("Old", None),
        ("Later", None),
    ]
    assert (found.only_first, found.only_second) == (["Old"], ["New"])
    assert comparison(found, mine, theirs) == (
        "\n"
        "mine against theirs:\n"
        '  Sooner  stream="0"\n'
        "      15 s earlier with theirs: firing 0:05 to 0:50 (45 s), not 0:20 to 0:50 (30 s)\n"
        '  Vain  stream="0"\n'
        "      only with theirs: firing 0:15 to 0:50 (35 s)\n"
        '  Later  stream="0"\n'
        "      10 s later with theirs: firing 0:30 to 0:50 (20 s), not 0:20 to 0:50 (30 s)\n"
        '  Old  stream="0"\n'
        "      only with mine: firing 0:20 to 0:30 (10 s)\n"
        '  Later  stream="0"\n'
        "      only with mine: firing 1:15, still at the end\n"
        "\n"
        "fires at the same time with both:\n"
        "  Same\n"
        "\n"
        "sent to page: 2 incidents, 5 messages; 1 incident, 4 messages with theirs\n"
        "\n"
        "only mine has:\n"
        "  Old\n"
        "\n"
        "only theirs has:\n"
        "  New\n"
    )
    told = json.loads(json.dumps(differences(found)))
    assert told["firings"][0]["later_s"] == -15
    assert told["firings"][1]["first"] is None
    assert (told["only_first_has"], told["only_second_has"]) == (["Old"], ["New"])


def test_rule_sets_under_which_nothing_fires_are_said_to_be():
    mine, theirs = findings(verdict("A")), findings(verdict("A"), name="theirs")
    assert comparison(compare(mine, theirs), mine, theirs) == (
        "\nmine against theirs:\n  nothing fires with either\n"
    )


def test_an_episode_is_compared_with_one_that_overlaps_it():
    early, late, long = episode(0, 5, 10), episode(20, 25, 30), episode(5, 5, None)
    assert pairs([early, late], [long]) == [(early, long), (late, None)]
    assert pairs([early], [late]) == [(early, None), (None, late)]


def bars(axes, state: str) -> list[tuple[float, float, float]]:
    """The bars of a state: where in time, and at which height."""
    return sorted(
        (round(p.get_x(), 6), round(p.get_x() + p.get_width(), 6), round(p.get_y() + p.get_height() / 2, 3))
        for p in axes.patches
        if to_hex(p.get_facecolor()).upper() == plotting.STATE_COLOURS[state]
    )


def test_the_picture_has_a_row_for_each_alert_pages_first_and_no_heartbeat():
    figure = Figure()
    picture.draw([WHOLE], figure, "title")
    above, _, rows = figure.axes
    assert [text.get_text() for text in rows.get_yticklabels()] == ['Drift stream="0"', 'Slow stream="0"']
    assert bars(rows, "firing") == [(45, 70, 0)]
    assert bars(rows, "pending") == [(10, 20, 0), (10, 20, 1), (30, 45, 0), (90, 100, 0)]
    (curve,) = above.lines
    assert sum(y != y for y in curve.get_ydata()) == 1, "broken where there was no series"


def test_the_picture_of_two_rule_sets_has_two_bars_a_row():
    other = findings(verdict("Drift", episode(20, 25, 40)), name="theirs")
    figure = Figure()
    picture.draw([WHOLE, other], figure, "title")
    heights = {place for *_, place in bars(figure.axes[2], "firing")}
    assert heights == {-0.175, 0.175}


@pytest.mark.parametrize("suffix", [".svg", ".png"])
@pytest.mark.slow
def test_the_same_backtest_gives_the_same_picture(tmp_path, suffix):
    for name in ("a", "b"):
        picture.write([WHOLE], tmp_path / f"{name}{suffix}", "title")
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


def test_a_picture_of_nothing_is_one_too(tmp_path):
    picture.write([findings(verdict("A"))], tmp_path / "a.svg", "title")
    assert b"alerts: none" in (tmp_path / "a.svg").read_bytes()


RULES = "groups: [{name: g, rules: [{alert: A, expr: omni_streams > 9}]}]\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone"], "gone: No such file or directory"),
        (["empty"], "empty: no event in it"),
        (["noise"], "noise: no event in it, 2 lines refused"),
        (["good", "--config.file", "gone.yaml"], "gone.yaml: No such file or directory"),
        (["good", "--rules", "gone.yaml"], "gone.yaml: No such file or directory"),
        (["good", "--rules", "."], ".: Is a directory"),
        (["good", "--rules", "site.yaml"], "site.yaml: no rule file: it has no groups"),
        (["good", "--rules", "record.yaml"], "record.yaml: no alert rule in it"),
        (["good", "--against", "gone.yaml"], "gone.yaml: No such file or directory"),
        (
            ["good", "--against", "own.yaml", "--against", "site.yaml"],
            "site.yaml: settings are a rule set by themselves: give rule files or one omniwatch.yaml",
        ),
        (
            ["good", "--against", "bad.yaml"],
            'bad.yaml: alerts.drift_page_ms: expected a number >= 0.001, <= 1e+09, got "sixty"',
        ),
        (["good", "--plot", "a.pdf"], "a.pdf: a plot ends in .svg or .png"),
    ],
)
@pytest.mark.programs
def test_a_mistake_is_one_line_and_exit_code_2(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record(Path("good"), [ev.Video(t=T0 + n, stream="a", pts_ms=0) for n in range(3)])
    Path("empty").write_bytes(b"")
    Path("noise").write_bytes(b"a\nb\n")
    Path("own.yaml").write_text(RULES)
    Path("record.yaml").write_text(RULES.replace("alert: A", "record: 'a:b:c'"))
    Path("site.yaml").write_text("alerts: {drift_page_ms: 75}\n")
    Path("bad.yaml").write_text("alerts: {drift_page_ms: sixty}\n")
    before = sorted(tmp_path.iterdir())
    assert run(*arguments) == (2, "", f"Error: {message}\n")
    assert sorted(tmp_path.iterdir()) == before


def test_without_prometheus_it_says_what_is_missing(tmp_path, monkeypatch):
    path = record(tmp_path / "good", [ev.Video(t=T0, stream="a", pts_ms=0)])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(path) == (
        2,
        "",
        "Error: prometheus is not installed: a backtest asks the real Prometheus\n",
    )
