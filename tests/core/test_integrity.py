"""Frame ids by serial arithmetic, and what makes a frame corrupt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniwatch.core.integrity import Findings, FrameWatch, is_corrupt
from omniwatch.frames import distance as frames_after
from omniwatch.settings import Frames

WINDOWS = Frames()
TOP = 2**32


def found(*ids: int, count: int = 1) -> Findings:
    watch, total = FrameWatch(), Findings()
    for frame_id in ids:
        step = watch.observe(frame_id % TOP, count, WINDOWS)
        total.lost += step.lost
        total.duplicate += step.duplicate
        total.late += step.late
        total.loss_runs += step.loss_runs
        total.epoch |= step.epoch
    return total


@pytest.mark.parametrize("base", [0, TOP - 3])
@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ((0, 1, 2, 3), Findings()),
        ((0, 1, 4), Findings(lost=2)),
        ((0, 1, 5), Findings(lost=3, loss_runs=1)),
        ((0, 1, 1), Findings(duplicate=1)),
        ((0, 1, 3, 2, 4), Findings(lost=1, late=1)),
        ((0, 1, 3, 2, 2), Findings(lost=1, late=1, duplicate=1)),
        ((0, 151), Findings(lost=150, loss_runs=1)),
        ((0, 152), Findings(epoch=True)),
        ((80, 6), Findings(duplicate=1)),
        ((80, 5), Findings(epoch=True)),
    ],
)
def test_findings(base, ids, expected):
    assert found(*(base + i for i in ids)) == expected


def test_chunks_take_several_ids():
    assert found(0, 3, 6, count=3) == Findings()
    assert found(0, 6, count=3) == Findings(lost=3, loss_runs=1)
    assert found(0, 6, 3, count=3) == Findings(lost=3, loss_runs=1, late=3)
    assert found(0, 2, count=3) == Findings(duplicate=1)


@given(st.integers(0, TOP - 1), st.integers(-(2**31) + 1, 2**31 - 1))
def test_ahead_is_the_signed_distance(base, distance):
    assert frames_after(base, (base + distance) % TOP) == distance


@given(st.permutations(range(40)), st.integers(0, TOP - 1))
def test_whatever_the_order_each_frame_is_counted_once(order, base):
    watch, lost, late = FrameWatch(base), 0, 0
    for i in order:
        step = watch.observe((base + i) % TOP, 1, WINDOWS)
        assert step.duplicate == 0
        lost += step.lost
        late += step.late
    assert lost == late
    assert watch.missing == []
    assert watch.next_id == (base + 40) % TOP


def test_missing_ids_are_bounded():
    watch = FrameWatch(0)
    for i in range(1, 1000):
        watch.observe(i * 100, 1, WINDOWS)
    assert len(watch.missing) <= WINDOWS.client_win


@pytest.mark.parametrize(
    ("checksum", "codes", "bits", "corrupt"),
    [
        (1 ^ 2 ^ 3 ^ 4, [1, 2, 3, 4], 11, False),
        (0, [1, 2, 3, 4], 11, True),
        (1 ^ 2 ^ 3 ^ 4, [1, 2, 3, 4, 2047], 11, False),
        (1 ^ 2 ^ 3 ^ 4, [1, 2, 3, 4, 2048], 11, True),
        (None, [2048], 11, True),
        (None, [65535], 16, False),
        (7, [1, 2, 3], 11, False),
        (7, [], 11, False),
        (1 ^ 2 ^ 3 ^ 4, [1, 2, 3, 4, 5], 11, False),
        (0, [1, 2, 3, 4, 5], 11, True),
    ],
)
def test_corrupt(checksum, codes, bits, corrupt):
    assert is_corrupt(codes, checksum, 1 << bits) is corrupt
