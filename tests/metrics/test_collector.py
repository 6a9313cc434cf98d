"""The exposition: one golden file, promtool's opinion of it, and the families' own rules."""

from __future__ import annotations

import json
import re
import subprocess
from math import inf

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from helpers.events import EXAMPLES, T0, asked, audio, ended, table, video
from helpers.paths import DATA
from omniwatch.core.streams import StreamTable
from omniwatch.events import Event, TurnStart, encode
from omniwatch.ingest.intake import Intake
from omniwatch.metrics.collector import collect
from omniwatch.metrics.sidecar_metrics import OWN_FAMILIES
from omniwatch.metrics.snapshot import ScrapeSnapshot
from omniwatch.metrics.stream_metrics import CONTRACT_NAMES, FAMILIES, HISTOGRAMS
from omniwatch.settings import Settings
from omniwatch.sources.tail import Tail

GOLDEN = DATA / "golden" / "metrics.prom"


class Scrape:
    """A registry's collector over one view."""

    def __init__(self, view: ScrapeSnapshot) -> None:
        self._view = view

    def collect(self):
        return collect(self._view)


def exposition(view: ScrapeSnapshot) -> str:
    registry = CollectorRegistry()
    registry.register(Scrape(view))
    return generate_latest(registry).decode()


def two_streams() -> list[Event]:
    """A stream with stated drift that slides away, and one played on paper with a stall."""
    sliding = [
        audio(
            i * 0.08, "sliding", turn=1, frame_id=i, expert_mask=0b11, pts_ms=i * 80.0, video_pts_ms=i * 80.04
        )
        for i in range(500)
        if i not in (100, 101, 102)
    ]
    stalled = [
        video(30, 1000, "stalled"),
        asked(30, 1, "stalled"),
        audio(30.5, "stalled", turn=1, dur_ms=1000.0),
        video(31, 2000, "stalled"),
        video(33, 4000, "stalled"),
        audio(34, "stalled", turn=1, dur_ms=4000.0),
        video(36, 7000, "stalled"),
        ended(37, 1, stream="stalled"),
    ]
    return sorted([asked(0, 1, "sliding"), *sliding, *stalled], key=lambda event: event.t)


def test_golden_exposition(tmp_path, update_golden):
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(map(encode, two_streams())) + b'{"ev":"later"}\n{"ev":\nnot json\n')
    live, intake = StreamTable(Settings()), Intake(Tail(path))
    intake.name = "tail:events.jsonl"
    while intake.step(live, 65536):
        pass
    live.advance(T0 + 40)
    shown = re.sub(
        r"(omniwatch_build_info)\{.*\}", r"\1{}", exposition(ScrapeSnapshot(T0 + 40, live, [intake]))
    )
    shown = re.sub(r"(omniwatch_source_free_bytes\{.*\}) \S+", r"\1 1e+09", shown)
    if update_golden:
        GOLDEN.write_text(shown)
    assert shown == GOLDEN.read_text(), "look at the difference; if it is meant, run pytest --update-golden"


@pytest.mark.programs
def test_promtool_objects_to_the_contract_names_and_to_nothing_else():
    shown = exposition(ScrapeSnapshot(T0 + 40, fed(two_streams())))
    said = subprocess.run(
        ["promtool", "check", "metrics"], input=shown, capture_output=True, text=True, check=False
    )
    complaints = {line.split()[0] for line in (said.stdout + said.stderr).splitlines()}
    assert complaints == set(CONTRACT_NAMES)


def fed(events: list[Event]) -> StreamTable:
    live = table()
    for event in events:
        live.apply(event)
    return live


def test_every_family_is_declared_once_with_help_and_plain_names():
    names = [family.name for family in (*FAMILIES, *OWN_FAMILIES, *HISTOGRAMS)]
    assert len(names) == len(set(names))
    for family in (*FAMILIES, *OWN_FAMILIES, *HISTOGRAMS):
        assert family.help.endswith(".")
        assert not family.name.endswith("_total"), "the counter's suffix is added"


def samples(shown: str, name: str) -> dict[str, float]:
    return {
        labels: float(value)
        for labels, value in re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", shown, re.MULTILINE)
    }


def test_counters_start_at_zero_and_series_come_with_streams():
    shown = exposition(ScrapeSnapshot(T0, table()))
    assert samples(shown, "omni_audio_frames_total") == {"": 0}
    assert set(samples(shown, "omni_turns_total").values()) == {0}
    assert samples(shown, "omni_codec_drift_ms") == {}
    assert samples(shown, "omni_token_rtt_ms") == {}


def test_labels_are_slots_never_session_ids():
    shown = exposition(ScrapeSnapshot(T0 + 40, fed(two_streams())))
    assert set(samples(shown, "omni_codec_drift_ms")) == {'stream="0"'}, (
        "of the other nothing is heard any more"
    )
    assert set(samples(shown, "omni_stream_silent_seconds")) == {'stream="0"', 'stream="1"'}
    assert "sliding" not in shown
    assert "stalled" not in shown


def test_streams_beyond_the_slots_are_counted_without_series():
    live = table(max_streams=1)
    for i in range(3):
        live.apply(TurnStart(t=T0, stream=f"s{i}", turn=1))
        live.apply(audio(0.5, f"s{i}", turn=1, pts_ms=0.0, video_pts_ms=1.0))
    shown = exposition(ScrapeSnapshot(T0 + 1, live))
    assert samples(shown, "omni_streams") == {"": 3}
    assert samples(shown, "omniwatch_streams_without_series") == {"": 2}
    assert set(samples(shown, "omni_codec_drift_ms")) == {'stream="0"'}
    assert samples(shown, "omni_audio_frames_total") == {"": 3}


def test_time_to_threshold_is_infinite_on_a_steady_stream():
    live = fed([audio(i * 0.08, pts_ms=0.0, video_pts_ms=5.0) for i in range(400)])
    shown = exposition(ScrapeSnapshot(T0 + 33, live))
    assert samples(shown, "omni_codec_drift_eta_seconds") == {'stream="0"': inf}
    assert samples(shown, "omni_codec_drift_slope_ppm") == {'stream="0"': 0}


def test_every_event_of_the_contract_is_counted_by_kind(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text("".join(f"{json.dumps(example)}\n" for example in EXAMPLES))
    live, intake = table(), Intake(Tail(path))
    intake.step(live, 65536)
    counted = samples(exposition(ScrapeSnapshot(T0, live, [intake])), "omniwatch_events_total")
    assert sorted(counted.values()) == [0] + [1] * len(EXAMPLES)
