"""From the model server's events to frames: every sample once, in order, whatever the chunks."""

from __future__ import annotations

import gzip
import json
import struct
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.asgi import heard
from helpers.paths import DATA
from omniwatch import frames
from omniwatch.frames import Kind
from omniwatch.media import sse, wav
from omniwatch.resume.encoders import BinaryEncoder, Piece, SseEncoder

RECORDED = DATA / "wire" / "chat-audio.sse.gz"


def audio_event(pcm: bytes, *, rate: int = 24_000, channels: int = 1, **choice: object) -> bytes:
    content = b64encode(wav.header(rate, channels, len(pcm)) + pcm).decode()
    meta = {
        "format": "wav",
        "sample_rate_hz": rate,
        "frame_count": len(pcm) // 2 // channels,
        "channels": channels,
    }
    body = {
        "id": "c",
        "choices": [
            {"index": 0, "delta": {"content": content}, "finish_reason": None, "audio_metadata": meta}
        ],
        "modality": "audio",
    }
    body["choices"][0] |= choice
    return json.dumps(body).encode()


def cut(coder: BinaryEncoder | SseEncoder, body: bytes) -> list[Piece]:
    pieces = [piece for raw in sse.Events(1 << 22).feed(body) for piece in coder.pieces(raw)]
    return pieces + list(coder.rest())


def test_recorded_chat_becomes_80_ms_frames_with_every_sample() -> None:
    body = gzip.decompress(RECORDED.read_bytes())
    pcm, text = heard(body)
    pieces = cut(BinaryEncoder(80), body)
    speech = [bytes(piece.payload) for piece in pieces if piece.kind == Kind.SPEECH]
    assert b"".join(speech) == pcm
    assert {len(payload) for payload in speech[:-1]} == {3840}
    assert 0 < len(speech[-1]) <= 3840
    assert b"".join(piece.payload for piece in pieces if piece.kind == Kind.TEXT).decode() == text
    form = json.loads(next(piece.payload for piece in pieces if piece.kind == Kind.FORMAT))
    assert form == {"codec": "pcm16", "sample_rate_hz": 24_000, "channels": 1, "frame_samples": 1920}
    events = [json.loads(piece.payload) for piece in pieces if piece.kind == Kind.EVENT]
    assert [e["choices"][0]["finish_reason"] for e in events if e["choices"]][-1] == "stop"
    assert events[-1]["usage"]["completion_tokens"] > 0


def test_recorded_chat_as_events_is_heard_the_same_by_an_ordinary_client() -> None:
    body = gzip.decompress(RECORDED.read_bytes())
    coder = SseEncoder(80)
    rechunked = b"".join(coder.wire(piece, i, 0) for i, piece in enumerate(cut(coder, body)))
    assert heard(rechunked) == heard(body)
    says = [json.loads(line[6:]) for line in rechunked.split(b"\n") if line.startswith(b"data: {")]
    audio = [event for event in says if event.get("modality") == "audio"]
    counts = [event["choices"][0]["audio_metadata"]["frame_count"] for event in audio]
    assert counts[:-1] == [1920] * (len(counts) - 1)
    assert [event["choices"][0]["finish_reason"] for event in audio].count("stop") == 1
    assert audio[-1]["choices"][0]["finish_reason"] == "stop"
    assert rechunked.rstrip().endswith(b"data: [DONE]")


@given(st.lists(st.integers(0, 9000), max_size=8), st.sampled_from(["wav", "pcm16"]), st.integers(1, 2))
def test_any_chunks_give_every_sample_once(sizes: list[int], form: str, channels: int) -> None:
    whole, body = b"", b""
    for number, size in enumerate(sizes):
        pcm = struct.pack("<H", number) * (size * channels)
        whole += pcm
        event = json.loads(audio_event(pcm, channels=channels))
        if form == "pcm16":
            event["choices"][0]["delta"]["content"] = b64encode(pcm).decode()
            event["choices"][0]["audio_metadata"]["format"] = "pcm16"
        body += b"data: " + json.dumps(event).encode() + b"\r\n\r\n"
    pieces = [
        piece for piece in cut(BinaryEncoder(80), body + b"data: [DONE]\n\n") if piece.kind == Kind.SPEECH
    ]
    assert b"".join(piece.payload for piece in pieces) == whole
    assert all(len(piece.payload) == 3840 * channels for piece in pieces[:-1])


@pytest.mark.parametrize(
    "raw",
    [
        b"no json",
        b"[1]",
        b'{"error": {"message": "m"}}',
        b'{"choices": [], "usage": {"total_tokens": 3}}',
        b'{"choices": [{"index": 0, "delta": {"tool_calls": [1]}}]}',
        b'{"choices": [{"index": 0, "delta": {"content": "end"}, "finish_reason": "stop"}]}',
        b'{"choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}]}',
        b'{"choices": [{"index": 0, "delta": {"content": "%%%"}}], "modality": "audio"}',
        b'{"choices": [{"index": 0, "delta": {"content": "SUQzBAA"}, "audio_metadata": {"format": "mp3"}}],'
        b' "modality": "audio"}',
    ],
)
def test_what_is_neither_plain_text_nor_pcm_passes_as_it_is(raw: bytes) -> None:
    assert list(BinaryEncoder(80).pieces(raw)) == [Piece(Kind.EVENT, raw)]
    assert list(SseEncoder(80).pieces(raw)) == [Piece(Kind.EVENT, raw)]


@pytest.mark.parametrize("bits", [8, 24])
def test_sound_that_is_not_16_bit_is_not_cut(bits: int) -> None:
    event = json.loads(audio_event(b"\0" * 960))
    sound = bytearray(b64decode(event["choices"][0]["delta"]["content"]))
    sound[34] = bits
    event["choices"][0]["delta"]["content"] = b64encode(sound).decode()
    raw = json.dumps(event).encode()
    assert list(BinaryEncoder(80).pieces(raw)) == [Piece(Kind.EVENT, raw)]


def test_a_streamed_wav_whose_length_was_not_filled_in_is_read_to_its_end() -> None:
    event = json.loads(audio_event(b"\1\2" * 1920))
    sound = bytearray(b64decode(event["choices"][0]["delta"]["content"]))
    for length in (0, 0xFFFFFFFF):
        sound[40:44] = struct.pack("<I", length)
        event["choices"][0]["delta"]["content"] = b64encode(sound).decode()
        pieces = list(BinaryEncoder(80).pieces(json.dumps(event).encode()))
        assert [piece.kind for piece in pieces] == [Kind.FORMAT, Kind.SPEECH]
        assert bytes(pieces[1].payload) == b"\1\2" * 1920


def test_another_format_in_the_turn_is_announced_and_mixes_no_samples() -> None:
    coder = BinaryEncoder(80)
    pieces = [
        *coder.pieces(audio_event(b"\1\1" * 2000)),
        *coder.pieces(audio_event(b"\2\2" * 1000, rate=16_000)),
    ]
    pieces += coder.rest()
    kinds = [(piece.kind, len(piece.payload)) for piece in pieces if piece.kind == Kind.SPEECH]
    assert kinds == [(Kind.SPEECH, 3840), (Kind.SPEECH, 160), (Kind.SPEECH, 2000)]
    rates = [json.loads(piece.payload)["sample_rate_hz"] for piece in pieces if piece.kind == Kind.FORMAT]
    assert rates == [24_000, 16_000]


def test_an_event_that_is_shorter_than_a_frame_and_says_more_than_its_sound_holds_sound_of_no_length() -> (
    None
):
    coder = SseEncoder(80)
    short = json.loads(audio_event(b"\1\0" * 1000)) | {"usage": {"total_tokens": 5}}
    pieces = list(coder.pieces(json.dumps(short).encode()))
    assert [piece.kind for piece in pieces] == [Kind.EVENT]
    said = json.loads(pieces[0].payload)
    assert said["usage"] == {"total_tokens": 5}
    assert said["choices"][0]["audio_metadata"]["frame_count"] == 0
    pieces += coder.pieces(audio_event(b"\2\0" * 1000))
    pieces += coder.rest()
    body = b"".join(coder.wire(piece, 0, 0) for piece in pieces)
    assert heard(body) == (b"\1\0" * 1000 + b"\2\0" * 1000, "")


def test_ids_of_events_are_the_frame_and_the_part_after_it() -> None:
    coder = SseEncoder(80)
    assert coder.wire(Piece(Kind.SPEECH, b"{}"), 12, 0) == b"id: 12\ndata: {}\n\n"
    assert coder.wire(Piece(Kind.EVENT, b"a\nb"), 12, 3) == b"id: 12.3\ndata: a\ndata: b\n\n"
    assert coder.ended("superseded", 12, 0).startswith(b"event: end\n"), (
        "an id here would skip what was not sent"
    )


def test_binary_wire_is_a_frame_with_the_checksum_of_its_words() -> None:
    (frame,) = frames.Decoder().feed(
        BinaryEncoder(80).wire(Piece(Kind.SPEECH, memoryview(b"\1\0\2\0")), 9, 0)
    )
    assert (frame.frame_id, frame.checksum, frame.kind, frame.part) == (9, 3, Kind.SPEECH, 0)
