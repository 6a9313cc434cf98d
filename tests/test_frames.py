"""The frame protocol: what is encoded is decoded, however it is cut; ids go around; a damaged frame shows."""

from __future__ import annotations

import functools
import operator
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omniwatch import frames
from omniwatch.frames import Frame, Kind

IDS = st.integers(0, 2**32 - 1)
ITEMS = st.tuples(
    IDS, st.binary(max_size=300), st.sampled_from(list(Kind)), st.integers(0, 2**32 - 1), st.integers(0, 255)
)


def fields(frame: Frame) -> tuple[int, bytes, int, int, int]:
    return frame.frame_id, bytes(frame.payload), frame.kind, frame.part, frame.expert_mask


def test_header_is_the_seeds_struct_to_the_byte() -> None:
    wire = frames.encode(0x01020304, b"\x0b\x0a\x00\x01", expert_mask=0x81)
    assert wire[: frames.HEADER.size] == bytes([4, 3, 2, 1, 0x0B, 0x0B, 0x81, 0])
    assert frames.HEADER.size == 8
    assert wire[8:16] == struct.pack("<II", 4, 0)


@given(st.lists(ITEMS, max_size=12), st.data())
def test_any_cut_of_the_stream_gives_the_same_frames(items: list, data: st.DataObject) -> None:
    stream = b"".join(
        frames.encode(i, payload, kind=kind, part=part, expert_mask=mask)
        for i, payload, kind, part, mask in items
    )
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    decoder, got = frames.Decoder(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        got += list(decoder.feed(stream[start:end]))
    assert [fields(frame) for frame in got] == items
    assert all(frames.verify(frame) for frame in got)
    assert decoder.pending == 0


@given(st.lists(ITEMS, min_size=1, max_size=6))
def test_encode_into_writes_what_encode_returns(items: list) -> None:
    want = b"".join(frames.encode(i, p, kind=k, part=part, expert_mask=m) for i, p, k, part, m in items)
    buffer, offset = bytearray(len(want)), 0
    for i, payload, kind, part, mask in items:
        offset = frames.encode_into(
            buffer, offset, i, memoryview(payload), kind=kind, part=part, expert_mask=mask
        )
    assert (bytes(buffer), offset) == (want, len(want))


def test_encode_into_refuses_a_buffer_that_is_too_short() -> None:
    buffer = bytearray(frames.PREFIX.size + 3)
    with pytest.raises(struct.error, match="does not fit"):
        frames.encode_into(buffer, 0, 1, b"four")
    assert len(buffer) == frames.PREFIX.size + 3


def test_a_whole_chunk_is_not_copied() -> None:
    chunk = frames.encode(7, b"speech") + frames.encode(8, b"more")
    first, second = frames.Decoder().feed(chunk)
    assert first.payload.obj is chunk
    assert second.payload.obj is chunk


@given(st.binary(max_size=500))
def test_checksum_is_the_xor_of_the_words(payload: bytes) -> None:
    padded = payload + b"\0" * (len(payload) % 2)
    words = struct.unpack(f"<{len(padded) // 2}H", padded)
    assert frames.checksum(payload) == functools.reduce(operator.xor, words, 0)


@given(st.lists(st.integers(0, 2047), min_size=4, max_size=16), IDS)
def test_codes_are_checked_by_codebooks_0_to_3(codes: list[int], frame_id: int) -> None:
    payload = struct.pack(f"<{len(codes)}H", *codes)
    wire = frames.encode(frame_id, payload, check=frames.codes_checksum(codes))
    (frame,) = frames.Decoder().feed(wire)
    assert frames.verify(frame, codes=True)
    assert frame.checksum == codes[0] ^ codes[1] ^ codes[2] ^ codes[3]


@given(st.binary(min_size=1, max_size=200), st.data())
def test_a_flipped_bit_shows(payload: bytes, data: st.DataObject) -> None:
    wire = bytearray(frames.encode(3, payload))
    wire[frames.PREFIX.size + data.draw(st.integers(0, len(payload) - 1))] ^= 1 << data.draw(
        st.integers(0, 7)
    )
    (frame,) = frames.Decoder().feed(bytes(wire))
    assert not frames.verify(frame)


def test_a_length_beyond_the_bound_is_no_frame() -> None:
    wire = frames.PREFIX.pack(0, 0, 0, 0, frames.MAX_PAYLOAD + 1, 0)
    with pytest.raises(frames.FrameError, match="at most"):
        list(frames.Decoder().feed(wire))


@given(IDS, st.integers(-(2**31) + 1, 2**31 - 1))
def test_distance_undoes_add_around_the_end(frame_id: int, count: int) -> None:
    later = frames.add(frame_id, count)
    assert 0 <= later < 2**32
    assert frames.distance(frame_id, later) == count
    assert frames.distance(later, frame_id) == -count


@given(IDS, st.integers(-(2**31), 2**31 - 1))
def test_jump_names_every_step_once(expected: int, step: int) -> None:
    got = frames.jump(expected, frames.add(expected, step))
    if step == 0:
        assert got == ("next", 0)
    elif 1 <= step <= 150:
        assert got == ("gap", step)
    elif -75 <= step < 0:
        assert got == ("old", 0)
    else:
        assert got == ("epoch", 0)


@pytest.mark.parametrize(
    ("frame_id", "kind"), [(74, "epoch"), (75, "old"), (150, "next"), (300, "gap"), (301, "epoch")]
)
def test_windows_of_a_jump_are_the_servers_75_and_the_clients_150(frame_id: int, kind: str) -> None:
    assert frames.jump(150, frame_id).kind == kind
