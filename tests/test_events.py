"""The event contract: what is taken, what is refused and why, and its schema."""

from __future__ import annotations

import json

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.events import EXAMPLES
from helpers.paths import CLONE
from omniwatch import events

SCHEMA = CLONE / "docs" / "events.schema.json"
GOOD = b'{"ev":"audio","t":1.5,"stream":"a","frame_id":3}'


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: str(e["ev"]))
@pytest.mark.slow
def test_each_event_is_read_written_and_described_alike(example):
    event = events.decode(json.dumps(example).encode())
    assert isinstance(event, events.Event)
    assert events.EV_OF[type(event)] == example["ev"]
    again = events.encode(event)
    assert again.endswith(b"\n")
    assert events.decode(again[:-1]) == event
    jsonschema.validate(example, events.json_schema())
    jsonschema.validate(json.loads(again), events.json_schema())


def test_the_examples_cover_the_contract():
    assert [e["ev"] for e in EXAMPLES] == list(events.EV_OF.values())


def test_the_committed_schema_is_that_of_the_structs():
    assert json.loads(SCHEMA.read_text()) == events.json_schema(), "run `make schema`"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "json"),
        (b"{", "json"),
        (b"{]", "json"),
        (b"[" * 100_000, "fields"),
        (b'{"ev":' + b"[" * 50_000, "json"),
        (b"[1]", "fields"),
        (b"5", "fields"),
        (b"{}", "fields"),
        (b'{"ev":5}', "fields"),
        (b'{"ev":"audio","t":1}', "fields"),
        (b'{"ev":"audio","t":-1,"stream":"a"}', "fields"),
        (b'{"ev":"audio","t":1e400,"stream":"a"}', "fields"),
        (b'{"ev":"audio","t":NaN,"stream":"a"}', "json"),
        (b'{"ev":"audio","t":1,"stream":""}', "fields"),
        (b'{"ev":"audio","t":1,"stream":"' + b"x" * 65 + b'"}', "fields"),
        (b'{"ev":"audio","t":1,"stream":"a","frame_id":4294967296}', "fields"),
        (b'{"ev":"audio","t":1,"stream":"a","expert_mask":256}', "fields"),
        (b'{"ev":"audio","t":1,"stream":"a","dur_ms":0}', "fields"),
        (b'{"ev":"turn","t":1,"stream":"a","turn":9223372036854775808}', "fields"),
        (b'{"ev":"turn","t":1,"stream":"a","turn":18446744073709551616}', "fields"),
        (b'{"ev":"stream_start","t":1,"stream":"a","peer":"' + b"x" * 65 + b'"}', "fields"),
        (b'{"ev":"stream_start","t":1,"stream":"a","kind":"' + b"x" * 65 + b'"}', "fields"),
        (b'{"ev":"audio","t":1,"stream":"\xff"}', "encoding"),
        (b'{"ev":"audio","t":1,"stream":"a","unread":"\xff"}', "encoding"),
        (GOOD + b" " + GOOD, "json"),
    ],
)
def test_a_line_that_is_no_event_is_refused_with_its_reason(line, reason):
    refused = events.decode(line)
    assert isinstance(refused, events.Invalid)
    assert refused.reason == reason
    assert refused.detail


def test_unknown_fields_are_ignored_and_unknown_kinds_told_apart():
    assert events.decode(b'{"ev":"rtt","t":1,"stream":"a","rtt_ms":5,"mood":"good"}') == events.Rtt(
        t=1.0, stream="a", rtt_ms=5.0
    )
    assert events.decode(b'{"ev":"mood","w":"x","n":3}') == events.Unknown("mood", "x", 3)


def test_the_largest_event_of_each_kind_that_is_taken_fits_a_checkpoint():
    """What a stream keeps of its events is kept over a restart: msgpack has no number past 64 bits."""
    longest = "\N{MUSICAL SYMBOL G CLEF}" * 64
    for turn in (2**63 - 1, longest):
        kept = events.TurnStart(t=1e11, stream=longest, turn=turn, w=longest, n=2**53)
        assert events.decode(events.encode(kept)[:-1]) == kept
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(kept), type=events.TurnStart) == kept
    listener = events.StreamStart(t=1.0, stream="a", peer=longest, kind=longest)
    assert len(msgspec.msgpack.encode(listener)) < 1024


LINES = st.lists(
    st.one_of(
        st.sampled_from([json.dumps(e).encode() for e in EXAMPLES]),
        st.sampled_from(
            [b"", b"  ", b"{", b'{"ev":"mood"}', GOOD + GOOD, b'{"ev":"audio",', b'"t":1,"stream":"a"}']
        ),
        st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"")),
    ),
    max_size=20,
)


def test_two_events_on_a_line_do_not_pass_beside_an_empty_line():
    (refused,) = events.decode_lines(GOOD + GOOD + b"\n\n")
    assert isinstance(refused, events.Invalid)


@given(LINES)
def test_a_chunk_gives_what_its_lines_give(lines):
    chunk = b"".join(line + b"\n" for line in lines)
    assert events.decode_lines(chunk) == [events.decode(line) for line in lines if line.strip()]
