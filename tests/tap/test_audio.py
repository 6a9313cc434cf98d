"""How long a piece of speech lasts, told from its header and its size."""

from __future__ import annotations

import base64
import json
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.scripted_tap import pcm16, wav
from omniwatch.tap.audio import duration_ms, measure
from omniwatch.tap.partial_json import LONG_BYTES, WHOLE_BYTES, read

STREAMING_SIZES = [0, 0xFFFFFFFF, 0x7FFFFFFF, 1_000_000]


class Speech(msgspec.Struct):
    data: str
    format: str | None = None


_speech = msgspec.json.Decoder(Speech)


def through_json(data: str) -> str:
    """The text as the tap has it, shortened where the message is long."""
    found = read(_speech, json.dumps({"type": "x", "data": data, "format": "wav"}))
    assert found is not None
    assert len(found.data) <= WHOLE_BYTES
    return found.data


@pytest.mark.parametrize("ms", [40, 80, 240, 296.875, 2000, 60_000])
def test_the_header_of_a_wav_file_tells(ms):
    assert duration_ms(wav(ms), "wav") == pytest.approx(ms)
    assert duration_ms(through_json(wav(ms)), "wav") == pytest.approx(ms)


@pytest.mark.parametrize("stated", STREAMING_SIZES)
@pytest.mark.parametrize("ms", [80, 2000])
def test_a_header_of_a_streaming_writer_lies_about_the_size(stated, ms):
    assert duration_ms(through_json(wav(ms, data_size=stated)), "wav") == pytest.approx(ms)


def test_a_header_that_leaves_out_what_follows_the_audio_is_believed():
    assert duration_ms(wav(100, data_size=2 * 1200)) == pytest.approx(50)


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000, 44_100, 48_000])
def test_the_rate_is_the_headers(rate):
    assert duration_ms(wav(500, rate=rate), "wav", 24_000) == pytest.approx(500)


@pytest.mark.parametrize("size", [4, 26, 60, 200])
def test_chunks_before_the_audio_are_passed_over(size):
    notes = struct.pack("<4sI", b"LIST", size) + bytes(size)
    assert duration_ms(through_json(wav(2000, extra=notes)), "wav") == pytest.approx(2000)


def test_a_header_without_a_rate_tells_nothing():
    assert duration_ms(wav(100, rate=24_000).replace("wF0AAIC7AAAC", "AAAAAAAAAAAA"), "wav") == 0


def test_stereo_and_wide_samples_count_by_their_block():
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, 3, 2, 48_000, 384_000, 8, 32)
    file = b"RIFF\0\0\0\0WAVE" + head + struct.pack("<4sI", b"data", 384_000 // 10) + bytes(384_000 // 10)
    assert duration_ms(base64.b64encode(file).decode()) == pytest.approx(100)


@pytest.mark.parametrize(
    ("encoding", "rate", "size", "ms"),
    [
        ("pcm16", 24_000, 4800, 100),
        ("pcm16", 16_000, 3200, 100),
        ("pcm16", None, 4800, 100),
        ("pcm16", 0, 4800, 100),
        (None, None, 4800, 100),
        ("wav", None, 4800, 100),
        ("pcm_f32le", 24_000, 9600, 100),
        ("g711_ulaw", None, 800, 100),
        ("g711_alaw", 8_000, 800, 100),
        ("opus", 24_000, 4800, 0),
        ("mp3", None, 4800, 0),
    ],
)
def test_raw_audio_is_told_by_its_size(encoding, rate, size, ms):
    assert duration_ms(base64.b64encode(bytes(size)).decode(), encoding, rate) == pytest.approx(ms)


@given(st.integers(0, 20_000))
def test_the_size_is_exact_whatever_the_padding(size):
    data = bytes(size)
    text = base64.b64encode(data).decode()
    assert measure(text)[1] == size
    assert measure(text.rstrip("="))[1] == size
    assert measure(through_json(text))[1] == size


@pytest.mark.parametrize("text", ["", "A", "=", "====", "\x7f", "abc\x7fmany", "ü" * 10, "\x7f-5"])
def test_what_is_no_base64_has_no_length(text):
    assert duration_ms(text) == 0


def test_no_more_than_the_first_bytes_are_decoded():
    head, size = measure(pcm16(60_000))
    assert len(head) <= LONG_BYTES
    assert size == 2 * 24 * 60_000
