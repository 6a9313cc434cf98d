from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from omniwatch.sources.lines import LineBuffer

LIMIT = 8


@given(st.lists(st.binary(max_size=14).map(lambda raw: raw.replace(b"\n", b" ")), max_size=12), st.data())
def test_any_cut_of_the_stream_gives_the_lines_within_the_limit(
    lines: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    buffer, got, at = LineBuffer(LIMIT), b"", 0
    while at < len(stream):
        size = data.draw(st.integers(1, 30))
        got += buffer.cut(stream[at : at + size])
        at += size
    assert got == b"".join(line + b"\n" for line in lines if len(line) <= LIMIT)
    assert buffer.oversize == sum(len(line) > LIMIT for line in lines)
    assert buffer.pending == b""


def test_a_line_without_an_end_is_held_back() -> None:
    buffer = LineBuffer(LIMIT)
    assert buffer.cut(b"one\ntw") == b"one\n"
    assert buffer.pending == b"tw"
    assert buffer.cut(b"o\n") == b"two\n"
    assert buffer.pending == b""


def test_a_line_of_exactly_the_limit_passes() -> None:
    buffer = LineBuffer(LIMIT)
    assert buffer.cut(b"12345678") == b""
    assert buffer.cut(b"\n123456789\nok\n") == b"12345678\nok\n"
    assert buffer.oversize == 1


def test_what_was_dropped_is_not_pending_and_is_counted_once() -> None:
    buffer = LineBuffer(LIMIT)
    for _ in range(5):
        assert buffer.cut(b"xxxxxx") == b""
    assert (buffer.oversize, buffer.pending) == (1, b"")
    assert buffer.cut(b"tail\nnext\n") == b"next\n"
    assert buffer.oversize == 1


def test_clear_forgets_the_beginning_and_an_ongoing_drop() -> None:
    buffer = LineBuffer(LIMIT)
    buffer.cut(b"half")
    buffer.clear()
    assert buffer.cut(b"line\n") == b"line\n"
    buffer.cut(b"x" * 20)
    buffer.clear()
    assert buffer.cut(b"line\n") == b"line\n"


def test_memory_stays_flat_on_a_line_without_an_end() -> None:
    buffer, piece = LineBuffer(), b"x" * 65536
    tracemalloc.start()
    for _ in range(500):
        buffer.cut(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    assert buffer.oversize == 1
