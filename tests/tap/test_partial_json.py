"""Reading what passes: long strings cut short without changing what the rest says."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniwatch.tap.partial_json import (
    ELIDED,
    INTRICATE_BYTES,
    LONG_BYTES,
    MAX_QUOTES,
    SILENT,
    WHOLE_BYTES,
    read,
    shorten,
)

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
    assert int(size.removesuffix(SILENT)) == 100_000
