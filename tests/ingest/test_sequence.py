from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniwatch.events import Unknown, Video
from omniwatch.ingest.sequence import MAX_LOST, MAX_NUMBER, MAX_WRITERS, SequenceTracker


def event(number: int, writer: str | None = "a") -> Video:
    return Video(t=1, stream="s", w=writer, n=number, pts_ms=0)


def fresh(tracker: SequenceTracker, *numbers: int, writer: str | None = "a") -> list[int]:
    return [line.n for line in tracker.fresh([event(number, writer) for number in numbers])]


@pytest.fixture
def settled() -> SequenceTracker:
    return SequenceTracker(settled=True)


def test_lines_in_order_are_all_new(settled: SequenceTracker) -> None:
    events = [event(number) for number in range(5)]
    assert settled.fresh(events) is events
    assert fresh(settled, 5, 6) == [5, 6]
    assert (settled.lost, settled.repeated) == (0, 0)


def test_numbers_left_out_are_lost(settled: SequenceTracker) -> None:
    assert fresh(settled, 0, 1, 5, 6, 9) == [0, 1, 5, 6, 9]
    assert settled.lost == 5


def test_one_garbled_number_loses_nothing_and_hides_nothing(settled: SequenceTracker) -> None:
    assert fresh(settled, 0, 1, 2**53, 3, 4, 5) == [0, 1, 2**53, 3, 4, 5]
    assert (settled.lost, settled.repeated) == (1, 0)


def test_a_gap_that_the_next_line_confirms_is_lost(settled: SequenceTracker) -> None:
    assert fresh(settled, 0, 1_000_000, 1_000_001) == [0, 1_000_000, 1_000_001]
    assert (settled.lost, settled.repeated) == (999_999, 0)
    assert fresh(settled, 500) == []


def test_a_garbled_writer_loses_no_more_than_a_gap(settled: SequenceTracker) -> None:
    assert fresh(settled, 500_000, writer="garbled") == [500_000]
    assert settled.lost == 0


def test_numbers_that_come_again_are_left_out(settled: SequenceTracker) -> None:
    assert fresh(settled, 0, 1, 2, 1, 2, 3) == [0, 1, 2, 3]
    assert fresh(settled, 3, 0) == []
    assert (settled.lost, settled.repeated) == (0, 4)


def test_a_writer_met_before_the_source_was_read_to_its_end_may_begin_anywhere() -> None:
    tracker = SequenceTracker()
    assert fresh(tracker, 500, 501, 503) == [500, 501, 503]
    assert tracker.lost == 1
    assert fresh(tracker, 499) == []


def test_a_writer_met_later_is_met_from_its_first_line(settled: SequenceTracker) -> None:
    assert fresh(settled, 3) == [3]
    assert settled.lost == 3


def test_writers_are_told_apart(settled: SequenceTracker) -> None:
    for number in range(3):
        for writer in "abc":
            assert fresh(settled, number, writer=writer) == [number]
    assert fresh(settled, 4, writer="b") == [4]
    assert fresh(settled, 2, writer="c") == []
    assert (settled.lost, settled.repeated) == (1, 1)


def test_writers_that_do_not_number_their_lines_are_always_new(settled: SequenceTracker) -> None:
    assert fresh(settled, 0, 0, 0, writer=None) == [0, 0, 0]
    assert fresh(settled, 0, 1) == [0, 1]
    assert fresh(settled, 0, writer=None) == [0]
    assert fresh(settled, 2) == [2]
    assert (settled.lost, settled.repeated) == (0, 0)


def test_a_line_of_an_unknown_kind_takes_its_number(settled: SequenceTracker) -> None:
    lines: list[Video | Unknown] = [event(0), Unknown("new", "a", 1), event(2)]
    assert settled.fresh(lines) == lines
    assert settled.lost == 0


@pytest.mark.parametrize("number", [-1, MAX_NUMBER + 1, 10**30])
def test_a_number_out_of_bounds_says_nothing(number: int) -> None:
    tracker = SequenceTracker()
    assert tracker.observe("a", 0)
    assert tracker.observe("a", number)
    assert fresh(tracker, 1) == [1]
    assert tracker.lost == 0


def test_what_is_lost_stays_within_what_a_checkpoint_holds(settled: SequenceTracker) -> None:
    for writer in range(2000):
        settled.observe(str(writer), MAX_NUMBER - 1)
        settled.observe(str(writer), MAX_NUMBER)
    assert settled.lost == MAX_LOST
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(settled), type=SequenceTracker) == settled


def test_only_so_many_writers_are_remembered(settled: SequenceTracker) -> None:
    for writer in range(MAX_WRITERS):
        settled.observe(str(writer), 0)
    assert not settled.observe("0", 0)
    settled.observe("one more", 0)
    assert len(settled.others) == MAX_WRITERS - 1
    assert not settled.observe("0", 0)
    assert settled.observe("1", 0)


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 6))),
    st.integers(1, 5),
    st.booleans(),
)
def test_it_agrees_with_its_definition_however_lines_are_batched(
    lines: list[tuple[str | None, int]], size: int, settled: bool
) -> None:
    tracker = SequenceTracker(settled=settled)
    events = [event(number, writer) for writer, number in lines]
    got = []
    for start in range(0, len(events), size):
        got += tracker.fresh(events[start : start + size])
        tracker = msgspec.msgpack.decode(msgspec.msgpack.encode(tracker), type=SequenceTracker)

    expected, following, lost = [], {}, 0
    for line in events:
        number = following.setdefault(line.w, 0 if settled else line.n)
        if line.w is None or line.n >= number:
            expected.append(line)
            lost += 0 if line.w is None else line.n - number
            following[line.w] = line.n + 1
    assert got == expected
    assert (tracker.lost, tracker.repeated) == (lost, len(events) - len(expected))
