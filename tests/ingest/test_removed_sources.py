"""A source written another way, at a reload or over a restart: nothing is counted twice and nothing unread is lost."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from omniwatch.ingest.intake import Intake
from omniwatch.ingest.removed_sources import MAX_PLACES, RemovedSources
from omniwatch.settings import Server, Settings
from omniwatch.sidecar.loop import Sidecar
from omniwatch.sources import Source
from omniwatch.sources.journal import Journal
from omniwatch.sources.spec import open_source

T0 = 1_790_000_000.0


class Place:
    """A folder with an event file, and a sidecar whose `sources` are written now this way and now that."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "spool" / "events.jsonl"
        self.path.parent.mkdir()
        (root / "link").symlink_to("spool")
        self.specs: list[str] = []
        self.settings = Settings()
        self._n = 0

    def write(self, count: int, *, numbered: bool = False, path: Path | None = None) -> None:
        with (path or self.path).open("ab") as file:
            for _ in range(count):
                number = {"w": "w1", "n": self._n} if numbered else {}
                self._n += 1
                line = {"ev": "audio", "t": T0 + self._n / 10, "stream": "a", **number}
                file.write(json.dumps(line).encode() + b"\n")

    def load(self) -> tuple[Settings, list[Source]]:
        return self.settings, [open_source(spec.format(root=self.root)) for spec in self.specs]

    def start(self, *specs: str) -> Sidecar:
        self.specs = list(specs)
        _, sources = self.load()
        return Sidecar(
            self.settings, sources, state_file=self.root / "checkpoint", boot="b", load_settings=self.load
        )

    def change(self, sidecar: Sidecar, how: str, *specs: str) -> Sidecar:
        """Reload with other sources, or end the sidecar and start it with them."""
        if how == "restart":
            sidecar.close()
            return self.start(*specs)
        self.specs = list(specs)
        assert sidecar.reload() == (True, "reloaded")
        return sidecar


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def total(sidecar: Sidecar, name: str = "omni_audio_frames_total") -> float:
    return sum(s.value for family in sidecar.collect() for s in family.samples if s.name == name)


EXACT = "tail:{root}/spool/events.jsonl"
SPELLINGS = [
    "{root}/spool/events.jsonl",
    "tail:{root}/spool/*.jsonl",
    "tail:{root}/s*/events.jsonl",
    "tail:{root}/**/events.jsonl",
    "tail:{root}/link/events.jsonl",
    "tail:{root}/link/*.jsonl",
    "tail:{root}/spool/../spool/events.jsonl",
    "tail:{root}//spool/./events.jsonl",
]


@pytest.mark.parametrize("numbered", [False, True], ids=["plain", "numbered"])
@pytest.mark.parametrize("how", ["reload", "restart"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_same_file_goes_on_under_another_spelling(
    place: Place, spelling: str, how: str, numbered: bool
) -> None:
    place.write(40, numbered=numbered)
    sidecar = place.start(EXACT)
    assert total(sidecar) == 40
    for spec, seen in ((spelling, 45), (EXACT, 50)):
        place.write(5, numbered=numbered)
        sidecar = place.change(sidecar, how, spec)
        assert total(sidecar) == seen
    place.write(1, numbered=numbered)
    assert total(sidecar) == 51
    assert total(sidecar, "omniwatch_events_lost_total") == 0
    assert total(sidecar, "omniwatch_events_repeated_total") == 0


@pytest.mark.parametrize("how", ["reload", "restart"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_what_was_unread_when_the_file_was_rotated_is_read_under_the_other_spelling(
    place: Place, spelling: str, how: str
) -> None:
    place.write(3)
    sidecar = place.start(EXACT)
    assert total(sidecar) == 3
    place.write(2)
    place.path.rename(place.path.with_name("events.jsonl.1"))
    place.write(4)
    sidecar = place.change(sidecar, how, spelling)
    for _ in range(3):
        sidecar.step()
    assert total(sidecar) == 9


def test_a_file_amid_its_rotation_goes_on_under_a_pattern(place: Place) -> None:
    place.write(3)
    sidecar = place.start(EXACT)
    assert total(sidecar) == 3
    place.write(2)
    place.path.rename(place.path.with_name("events.jsonl.1"))
    place.change(sidecar, "reload", "tail:{root}/spool/*.jsonl")
    assert total(sidecar) == 5


@pytest.mark.parametrize("how", ["reload", "restart"])
def test_a_source_taken_away_and_put_back_goes_on_where_it_was(place: Place, how: str) -> None:
    place.write(40)
    sidecar = place.start(EXACT)
    assert total(sidecar) == 40
    sidecar = place.change(sidecar, how, "tail:{root}/other.jsonl")
    assert total(sidecar) == 40
    place.write(2)
    sidecar = place.change(sidecar, how, "tail:{root}/spool/*.jsonl")
    assert total(sidecar) == 42


def test_a_file_that_is_new_to_a_running_sidecar_is_read_whole(place: Place) -> None:
    place.write(3)
    sidecar = place.start(EXACT)
    assert total(sidecar) == 3
    place.write(4, path=place.path.with_name("more.jsonl"))
    place.change(sidecar, "reload", "tail:{root}/spool/*.jsonl")
    assert total(sidecar) == 7


def test_numbered_lines_are_known_again_where_the_file_is_not(place: Place) -> None:
    place.write(40, numbered=True)
    sidecar = place.start(EXACT)
    assert total(sidecar) == 40
    os.link(place.path, place.root / "same.jsonl")
    place.change(sidecar, "reload", "tail:{root}/same.jsonl")
    place.write(1, numbered=True)
    assert total(sidecar) == 41
    assert total(sidecar, "omniwatch_events_repeated_total") == 40


def test_a_source_written_twice_is_one(place: Place) -> None:
    place.write(3)
    sidecar = place.start("{root}/spool/events.jsonl", EXACT)
    assert total(sidecar) == 3
    place.change(sidecar, "reload", EXACT, "{root}/spool/events.jsonl")
    place.write(1)
    assert total(sidecar) == 4


def test_a_unit_is_the_same_with_its_suffix_and_without() -> None:
    former, old = RemovedSources(), Intake(Journal("qwen2.5-omni"))
    old.source.restore({"cursor": "s=1"})
    former.keep(old.name, old.save())
    new, other = Intake(Journal("qwen2.5-omni.service")), Intake(Journal("vllm.service"))
    former.hand_over([new, other])
    assert new.source.state() == {"cursor": "s=1"}
    assert other.source.state() == {"cursor": ""}


def test_what_is_remembered_of_former_sources_is_bounded(place: Place) -> None:
    for number in range(MAX_PLACES + 6):
        place.write(1, path=place.root / f"{number:03}.jsonl")
    sidecar = place.start("tail:{root}/*.jsonl")
    assert total(sidecar) == MAX_PLACES + 6
    place.change(sidecar, "reload", "tail:{root}/*.json?")
    assert total(sidecar) == MAX_PLACES + 6
    former = RemovedSources()
    (intake,) = sidecar.intakes
    former.keep(intake.name, intake.save())
    former.hand_over([])
    assert len(former.places) == MAX_PLACES


def test_a_reload_makes_the_readers_of_the_machine_anew(place: Place) -> None:
    def readers(settings: Settings) -> object:
        def collect() -> Iterator[Metric]:
            family = GaugeMetricFamily("unit_watched", "", labels=["unit"])
            family.add_metric([settings.server.unit], 1.0)
            yield family

        return collect

    sidecar = Sidecar(place.settings, [], load_settings=place.load, host=readers)
    registry = CollectorRegistry()
    registry.register(sidecar)
    assert registry.get_sample_value("unit_watched", {"unit": "qwen3-omni.service"}) == 1
    place.settings = Settings(server=Server(unit="vllm.service"))
    sidecar.reload()
    assert registry.get_sample_value("unit_watched", {"unit": "vllm.service"}) == 1
    assert registry.get_sample_value("unit_watched", {"unit": "qwen3-omni.service"}) is None
