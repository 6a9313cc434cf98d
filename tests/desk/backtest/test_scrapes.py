"""A recording as the scrapes of a sidecar that reads it as it is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prometheus_client import Metric

from omniwatch import events as ev
from omniwatch.desk.backtest.errors import BacktestError
from omniwatch.desk.backtest.recording_source import Moments
from omniwatch.desk.backtest.rules import Rule
from omniwatch.desk.backtest.run import recorded
from omniwatch.desk.backtest.scrapes import Page, Scrapes
from omniwatch.desk.backtest.states import Series
from omniwatch.desk.backtest.tsdb import evaluations
from omniwatch.desk.simulation import SCENARIOS, events
from omniwatch.events import Event
from omniwatch.replay import Replay
from omniwatch.replay.recording import Recording
from omniwatch.settings import Alerts, Settings

T0 = 1_700_000_000
TARGETS = [{"job": "omniwatch", "instance": "a:1"}, {"job": "model_server", "instance": "a:2"}]


def written(path: Path, *lines: Event | bytes) -> Path:
    path.write_bytes(b"".join(line if isinstance(line, bytes) else ev.encode(line) for line in lines))
    return path


def seen(t: float, n: int | None = None, stream: str = "a") -> Event:
    if n is None:
        return ev.Video(t=t, stream=stream, pts_ms=0)
    return ev.Video(t=t, stream=stream, pts_ms=0, w="w", n=n)


def scraped(path: Path, settings: Settings | None = None) -> list[tuple[float, dict[str, str]]]:
    """Each scrape's time and its values by series."""
    moments = Moments(Recording(str(path)), "tail:x")
    found = []
    for t, text in Scrapes(moments, settings or Settings(), TARGETS):
        rows = [line.rsplit(" ", 2) for line in text.splitlines()]
        assert {row[2] for row in rows} == {str(t)}
        assert len({row[0] for row in rows}) == len(rows)
        found.append((t - T0, {row[0]: row[1] for row in rows}))
    return found


def of(name: str, **labels: str) -> str:
    pairs = [f'{label}="{text}"' for label, text in {**labels, **TARGETS[0]}.items()]
    return f"{name}{{{','.join(pairs)}}}"


def test_scrapes_begin_an_evaluation_early_and_end_with_the_recording(tmp_path):
    found = scraped(written(tmp_path / "e", seen(T0 + 0.5), seen(T0 + 3.2)))
    assert [t for t, _ in found] == [-4, -3, -2, -1, 0, 1, 2, 3]
    settings = Settings(alerts=Alerts(scrape_interval_s=2))
    assert [t for t, _ in scraped(tmp_path / "e", settings)] == [-4, -2, 0, 2]


def test_an_event_is_in_the_first_scrape_from_its_time_on_and_not_before(tmp_path):
    found = scraped(written(tmp_path / "e", seen(T0), seen(T0 + 1.001), seen(T0 + 2, 5), seen(T0 + 4, 9)))
    read = [float(values[of("omniwatch_events_total", source="tail:x", ev="video")]) for _, values in found]
    assert read == [0] * 5 + [1, 1, 3, 3, 4]
    lost = [float(values[of("omniwatch_events_lost_total", source="tail:x")]) for _, values in found]
    assert lost == [0] * 9 + [3]


def test_a_bad_line_is_counted_when_its_neighbours_are(tmp_path):
    path = written(tmp_path / "e", seen(T0), b"noise\n", seen(T0 + 2), b"[1]\n", seen(T0 + 3))
    bad = [
        sum(float(v) for series, v in values.items() if series.startswith("omniwatch_events_invalid_total"))
        for t, values in scraped(path)
        if t >= 0
    ]
    assert bad == [1, 1, 2, 2]


def test_everything_scraped_is_up_all_the_time(tmp_path):
    for _, values in scraped(written(tmp_path / "e", seen(T0), seen(T0 + 3))):
        ups = {series: value for series, value in values.items() if series.startswith("up{")}
        assert ups == {
            'up{job="omniwatch",instance="a:1"}': "1.0",
            'up{job="model_server",instance="a:2"}': "1.0",
        }


def test_the_curves_are_those_of_the_replay(tmp_path):
    made = list(events(SCENARIOS["overload"], 1, T0, 90))
    replay = Replay(Settings())
    replay.apply_all(made)
    replay.finish()
    (track,) = replay.tracks.values()
    values = dict(scraped(written(tmp_path / "e", *made)))
    compared = 0
    for sample in track.samples:
        page = values[sample.t - T0]
        assert page.get(of("omni_codec_drift_ms", stream="0")) == (
            None if sample.drift_ms is None else repr(float(sample.drift_ms))
        )
        rtt = page.get(of("omni_token_rtt_ms", stream="0", vantage="server"))
        assert rtt == (None if sample.rtt_ms is None else repr(float(sample.rtt_ms)))
        compared += sample.has_series
    assert compared > 80


def test_a_stream_that_went_stale_has_no_series_any_more(tmp_path):
    made = [*events(SCENARIOS["steady"], 1, T0, 10), seen(T0 + 100, stream="b")]
    silent = of("omni_stream_silent_seconds", stream="0")
    shown = [t for t, values in scraped(written(tmp_path / "e", *made)) if silent in values]
    assert shown == [*range(shown[0], 70), 100], "and then the slot is another stream's"


def test_labels_are_escaped_and_the_targets_win():
    metric = Metric("x", "", "gauge")
    metric.add_sample("x", {"a": 'q"\\\n', "job": "mine"}, float("inf"))
    text = Page({"job": "omniwatch"}).lines([metric], 5)
    assert text == 'up{job="omniwatch"} 1.0 5\nx{a="q\\"\\\\\\n",job="omniwatch"} +Inf 5\n'


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            [seen(T0 + 100), seen(T0)],
            "the recording goes back in time by 100 s, at 2023-11-14 22:15:00 UTC: "
            "no Prometheus has a moment twice; cut the recording there",
        ),
        (
            [seen(T0), seen(9e10)],
            "the recording goes from 2023-11-14 22:13:20 UTC to 4821-12-26 16:00:00 UTC: more than 7 days; cut it",
        ),
    ],
)
def test_a_clock_that_no_prometheus_could_follow_is_said(tmp_path, lines, message):
    with pytest.raises(BacktestError) as raised:
        scraped(written(tmp_path / "e", *lines))
    assert str(raised.value) == message


def test_a_little_disorder_is_as_a_server_writes_it(tmp_path):
    found = scraped(written(tmp_path / "e", seen(T0 + 2), seen(T0), seen(T0 + 1), seen(T0 + 3)))
    key = of("omniwatch_events_total", source="tail:x", ev="video")
    assert [float(values[key]) for _, values in found][-3:] == [0, 3, 4]


def test_without_any_time_there_is_nothing_to_scrape_for_long(tmp_path):
    path = written(tmp_path / "e", b"noise\n", json.dumps({"t": -1}).encode() + b"\n")
    moments = Moments(Recording(str(path)), "tail:x")
    scrapes = Scrapes(moments, Settings(), TARGETS)
    assert (moments.first_t, len(list(scrapes))) == (None, 1)
    assert sum(scrapes.counts.invalid.values()) == 2


def test_evaluations_are_whole_multiples_of_their_interval():
    assert evaluations(T0 - 4, T0 + 11, 5) == [T0, T0 + 5, T0 + 10]
    assert evaluations(0.2, 1.1, 0.3) == [0.3, 0.6, 0.9]
    assert evaluations(11, 14, 5) == []


def test_a_recorded_value_lasts_until_just_before_the_next_evaluation():
    rule = Rule("job:x:sum", "sum(x)", 5, labels={"team": "7"}, is_alert=False)
    answer = Series({"__name__": "gone", "job": "j"}, [(10, 2.0)])
    lines = list(recorded(rule, [answer], 1))
    assert lines[0] == (10, 'job:x:sum{job="j",team="7"} 2.0 10\n')
    assert [t for t, _ in lines] == [10, 11, 12, 13, 14]
    assert [t for t, _ in recorded(rule, [answer], 2)] == [10, 12, 13]
    assert [t for t, _ in recorded(rule, [answer], 15)] == [10]
