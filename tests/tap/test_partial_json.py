"""Reading what passes: long strings cut short without changing what the rest says, lines put together again."""

from __future__ import annotations

import base64
import itertools
import json
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omniwatch.tap.partial_json import (
    ELIDED,
    INTRICATE_BYTES,
    LONG_BYTES,
    MAX_QUOTES,
    WHOLE_BYTES,
    read,
    shorten,
)
from omniwatch.tap.sse import MAX_LINE_BYTES, EventLines

_anything = msgspec.json.Decoder(Any)
ROOM = "x" * WHOLE_BYTES
"""A string that makes any message one of those that are shortened."""


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(codec="utf-8", exclude_characters="\x7f")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None)
@given(json_values, st.booleans())
def test_all_but_the_long_strings_is_read_as_it_was(value, ascii_only):
    text = json.dumps({"before": value, "long": ROOM, "after": value}, ensure_ascii=ascii_only)
    assert len(shorten(text.encode()) or b"") < len(text)
    assert read(_anything, text) == {
        "before": value,
        "long": ROOM[:128] + ELIDED + str(len(ROOM) * 3 // 4),
        "after": value,
    }


@pytest.mark.parametrize(
    "text",
    [
        "\\" * 2000,
        '"' * 2000,
        "a" + '\\"' * 1000,
        "é" * 2000,
        "声" * 2000,
        "x" * 120 + "\\n" * 900,
        "x" * 127 + "é" * 900,
    ],
)
def test_long_text_of_any_kind_keeps_the_rest_readable(text):
    found = read(_anything, json.dumps({"text": text, "long": ROOM, "type": "x"}, ensure_ascii=False))
    assert found["type"] == "x"
    assert ELIDED in found["text"]


def test_short_messages_are_read_whole():
    text = "y" * (WHOLE_BYTES - 50)
    assert read(_anything, json.dumps({"text": text})) == {"text": text}


def test_strings_that_are_not_long_stay_whole_in_a_large_message():
    text = "z" * (LONG_BYTES - 1)
    assert read(_anything, json.dumps({"long": ROOM, "text": text}))["text"] == text


@pytest.mark.parametrize("strings", [MAX_QUOTES - 10, MAX_QUOTES + 10])
def test_a_message_of_very_many_strings_is_read_whole_or_left(strings):
    many = ["a"] * strings
    fits, exceeds = {"a": many, "b": ROOM}, {"a": many, "b": "x" * INTRICATE_BYTES}
    assert read(_anything, json.dumps(fits))["a"] == many
    assert (read(_anything, json.dumps(exceeds)) is None) == (strings > MAX_QUOTES)


def test_a_megabyte_of_escaped_quotes_is_left():
    assert read(_anything, json.dumps({"text": '"' * 2**20})) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "nonsense",
        '{"a": ',
        '{"a": "' + ROOM,
        '{"a": "' + ROOM + '"',
        '["' + "\ud800" + '"]',
        "[" * 100_000,
        "\x00",
    ],
)
def test_what_is_no_json_is_none(text):
    assert read(_anything, text) is None


def test_what_is_no_utf8_is_none():
    assert read(msgspec.json.Decoder(dict[str, str]), b'{"a": "\xff"}') is None


def test_the_size_of_a_long_string_is_told():
    audio = base64.b64encode(bytes(100_000)).decode()
    head, _, size = read(_anything, json.dumps({"data": audio}))["data"].partition(ELIDED)
    assert audio.startswith(head)
    assert int(size) == 100_000


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


lines = st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"").replace(b"\r", b"")), max_size=12)


@settings(deadline=None)
@given(lines, st.lists(st.integers(0, 10_000), max_size=30), st.sampled_from([b"\n\n", b"\r\n\r\n", b"\n"]))
def test_events_are_whole_however_the_body_was_cut(payloads, cuts, end):
    stream = b": a comment\n\n" + b"".join(b"event: x\ndata: " + payload + end for payload in payloads)
    reader = EventLines()
    found = [data.strip() for piece in pieces(stream, cuts) for data in reader.feed(piece)]
    assert found == [payload.strip() for payload in payloads]


def test_every_byte_by_itself():
    reader = EventLines()
    stream = b'data: {"a": 1}\n\ndata: [DONE]\n\n'
    found = [data for at in range(len(stream)) for data in reader.feed(stream[at : at + 1])]
    assert found == [b' {"a": 1}', b" [DONE]"]


@pytest.mark.parametrize("piece", [1 << 16, 1 << 20, MAX_LINE_BYTES])
def test_an_event_past_the_bound_is_left_and_the_next_one_read(piece):
    reader = EventLines()
    body = b"x" * piece
    tracemalloc.start()
    try:
        found = list(reader.feed(b"data: "))
        for _ in range(8 * MAX_LINE_BYTES // piece):
            found += reader.feed(body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    found += reader.feed(b"\n\ndata: next\n\n")
    assert found == [b" next"]
    assert peak < 3 * MAX_LINE_BYTES


def test_an_event_that_comes_in_one_piece_has_no_bound():
    assert len(next(EventLines().feed(b"data: " + b"x" * 2 * MAX_LINE_BYTES + b"\n"))) > 2 * MAX_LINE_BYTES


def test_an_event_without_an_end_is_not_given():
    assert list(EventLines().feed(b"data: half")) == []
