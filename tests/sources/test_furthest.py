"""Which entries of a journal were read before, by their cursors' numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from helpers.journal_files import read_all
from omniwatch.sources.furthest import MAX_COUNTED, Furthest
from omniwatch.sources.journal import Journal

A, B = "a" * 32, "b" * 32


def cursor(number: int, at_us: int, sequence: str = A, boot: str = A) -> str:
    return f"s={sequence};i={number:x};b={boot};m={at_us:x};t=60a24181e43e8;x=31f7d83b95dc71d8"


def passed(*cursors: str, furthest: Furthest | None = None) -> list[bool]:
    furthest = furthest or Furthest()
    return [furthest.passes(one) for one in cursors]


def test_an_entry_passes_once() -> None:
    assert passed(cursor(1, 10), cursor(2, 20), cursor(1, 10), cursor(2, 20), cursor(3, 30)) == [
        *[True] * 2,
        *[False] * 2,
        True,
    ]


@pytest.mark.parametrize("damaged", [(1 << 40, 30), (1, 30), (3, 1 << 50), (3, 1)])
def test_one_damaged_number_hides_no_other_entry(damaged: tuple[int, int]) -> None:
    others = [cursor(4, 40), cursor(5, 50)]
    assert passed(cursor(1, 10), cursor(2, 20), cursor(*damaged), *others) == [True] * 5


def test_another_boot_and_another_sequence_begin_anew() -> None:
    """The clock of a boot begins at 0; a journal that was lost begins its numbers anew."""
    cursors = [cursor(9, 90), cursor(10, 5, boot=B), cursor(1, 91, sequence=B), cursor(1, 91)]
    assert passed(*cursors) == [True] * 4
    assert passed("garbage", "garbage", "") == [True] * 3


def test_it_is_kept_over_a_restart() -> None:
    before = Furthest()
    passed(cursor(2**64 - 1, 2**64 - 1), furthest=before)
    state = msgspec.json.decode(msgspec.json.encode(before.state()))
    assert passed(cursor(7, 70), furthest=Furthest(state)) == [False]


@pytest.mark.parametrize(
    "state", [None, 7, "x", [1], {"a": 1}, {"a": [1]}, {"a": ["1", "2"]}, {"a": [1, 2, 3]}]
)
def test_a_state_that_is_none_is_a_first_start(state: Any) -> None:
    assert passed(cursor(1, 10), furthest=Furthest(state)) == [True]


def test_it_is_bounded() -> None:
    furthest = Furthest({f"s {number}": [1, 1] for number in range(1000)})
    passed(*(cursor(1, 1, sequence=f"{number:x}") for number in range(1000)), furthest=furthest)
    assert len(furthest.state()) == MAX_COUNTED


def test_a_journal_is_not_given_again_after_a_restart_whatever_journalctl_begins_with(tmp_path: Path) -> None:
    entries = tmp_path / "entries"
    record = '{"__CURSOR":"%s","MESSAGE":"{%d}"}\n'
    entries.write_text("".join(record % (cursor(number, 10 * number), number) for number in (1, 2, 3)))
    given: list[list[bytes]] = []
    # The last cursor is a damaged one, that is before all others by both numbers.
    state: dict[str, Any] = {}
    for _ in range(2):
        source = Journal(
            "omni.service", ("sh", "-c", f'cat {entries}; case "$*" in *follow*) exec sleep 99; esac')
        )
        source.restore(state)
        given.append(read_all(source))
        state = {**source.state(), "cursor": cursor(0, 0)}
        source.close()
    assert given == [[b"{1}", b"{2}", b"{3}"], []]
