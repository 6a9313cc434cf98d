"""Journals with damaged entries: the others are given, each once, and what cannot be read is counted."""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.damaged_journals import ENTRIES, Scene
from helpers.journal_files import Open, event, read_all, read_some, read_until, readers

# A journal takes a dozen journalctl, one after the other, and on a busy machine each of them may take a second.
pytestmark = [pytest.mark.programs, pytest.mark.timeout(600)]

PARTS, SHARE = 4, 3
"""Journals that are damaged here, by seeds; `make adversary` damages thousands."""
WHOLE = [event(number, number) for number in range(ENTRIES)]


def systemd_version() -> int:
    said = subprocess.run(["journalctl", "--version"], capture_output=True, text=True, check=True).stdout
    return int(said.split()[1])


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture
def reader(scene: Scene) -> Iterator[Open]:
    with readers(scene.log) as make:
        yield make


@pytest.mark.parametrize(
    "damaged", [(5,), (0,), (ENTRIES - 1,), (0, 1, 2), (3, 4, 8, ENTRIES - 1), range(ENTRIES)]
)
def test_damaged_entries_are_counted_and_the_others_are_given(
    scene: Scene, reader: Open, damaged: tuple[int, ...]
) -> None:
    scene.damage(*map(scene.name_of, damaged))
    source = reader()
    assert read_all(source) == [line for number, line in enumerate(WHOLE) if number not in damaged]
    assert source.invalid == {"damaged": len(damaged)}
    assert (source.up, source.error) == (True, None)


def test_what_comes_behind_a_damaged_entry_is_followed(scene: Scene, reader: Open) -> None:
    scene.damage(scene.name_of(ENTRIES - 1))
    source = reader()
    read_all(source)
    scene.log.append(event(99))
    assert read_until(source, 1) == [event(99)]


@pytest.mark.parametrize("budget", [1, 150, 1 << 20])
def test_a_restart_counts_no_damaged_entry_twice_and_loses_none(
    scene: Scene, reader: Open, budget: int
) -> None:
    damaged = (0, 4, 5, ENTRIES - 1)
    scene.damage(*map(scene.name_of, damaged))
    got: list[bytes] = []
    counted, state = 0, {"cursor": ""}
    for _ in range(2 * ENTRIES):
        source = reader(state)
        got += read_some(source, budget)
        counted += source.invalid.get("damaged", 0)
        state = source.state()
        source.close()
    assert got == [line for number, line in enumerate(WHOLE) if number not in damaged]
    assert counted == len(damaged)


def test_a_damaged_list_of_entries_hides_none_that_a_search_from_the_last_one_finds(
    scene: Scene, reader: Open
) -> None:
    """journalctl ends there, and says nothing."""
    looked = more = 0
    for place in scene.lists():
        scene.damage(place)
        there = scene.found()
        if there is None:
            continue
        got = read_all(reader())
        assert there <= set(got)
        assert len(got) == len(set(got))
        looked += 1
        more += len(got) > len(there)
    assert looked > 0
    # A newer journalctl goes on by itself, or says of the journal that it cannot read it.
    assert more > 0 or systemd_version() >= 255


@pytest.mark.parametrize("number", [3, 7])
@pytest.mark.parametrize("bits", [1 << 1, 1 << 6, 0xFF])
def test_a_damaged_number_leads_back_to_no_entry_that_was_read(
    scene: Scene, reader: Open, number: int, bits: int
) -> None:
    """A restart behind the entry begins where its number says."""
    for place in scene.numbers(number, bits):
        scene.damage(place)
        there = scene.found()
        if there is None:
            continue
        got, state = [], {"cursor": ""}
        for _ in range(ENTRIES + 1):
            source = reader(state)
            got += read_some(source, 1)
            state = source.state()
            source.close()
        assert Counter(got) == Counter(dict.fromkeys(there, 1))


@pytest.mark.parametrize("part", range(PARTS))
def test_bits_flipped_at_random_cost_no_other_entry(scene: Scene, part: int) -> None:
    seed = random.randrange(1 << 30)
    counts: Counter[str] = Counter()
    found = [wrong for number in range(seed, seed + SHARE) if (wrong := scene.play(number, counts))]
    assert not found
    assert counts["entries"] > 0
