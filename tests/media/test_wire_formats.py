"""WAV and server-sent events: each made-up or damaged input is read the same by all that read the format."""

from __future__ import annotations

import base64
import io
import itertools
import re
import struct
import tracemalloc
import wave
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.scripted_tap import sse_recording
from omniwatch.desk.chain import ChainError, questions
from omniwatch.desk.chain.sound import Speech
from omniwatch.desk.probe import TurnFailedError
from omniwatch.desk.probe.transcript import Recording, TranscriptError
from omniwatch.media import sse, wav
from omniwatch.media.sse import Events, TooLongError
from omniwatch.resume import speech
from omniwatch.tap.audio import duration_ms

RATE_HZ = 24_000
MAX_BYTES = 1 << 20


def file(
    samples: bytes = bytes(4800),
    *,
    kind: int = wav.PCM,
    channels: int = 1,
    rate_hz: int = RATE_HZ,
    bits: int = 16,
    before: bytes = b"",
    stated: int | None = None,
    more: bytes = b"",
) -> bytes:
    """A WAV file; `before` are chunks ahead of the samples, `more` bytes that the format chunk has after its first 16."""
    frame = channels * bits // 8
    form = struct.pack("<HHIIHH", kind, channels, rate_hz, rate_hz * frame, frame, bits) + more
    chunks = struct.pack("<4sI", b"fmt ", len(form)) + form + before
    size = len(samples) if stated is None else stated
    return b"RIFF\0\0\0\0WAVE" + chunks + struct.pack("<4sI", b"data", size) + samples


def seconds_by_tap(data: bytes) -> float:
    return duration_ms(base64.b64encode(data).decode(), "wav") / 1000


def seconds_by_resume(data: bytes) -> float | None:
    content = base64.b64encode(data).decode()
    event = f'{{"choices": [{{"index": 0, "delta": {{"content": "{content}"}}}}], "modality": "audio"}}'
    pcm = speech.read(event.encode()).pcm
    return None if pcm is None else len(pcm.samples) // (2 * pcm.channels) / pcm.rate_hz


def seconds_by_probe(data: bytes) -> float | None:
    recording = Recording()
    recording.sound(base64.b64encode(data).decode(), "wav")
    try:
        content = recording.wav()
    except TranscriptError:
        return None
    with wave.open(io.BytesIO(content)) as sound:
        return sound.getnframes() / sound.getframerate()


def seconds_by_bench(data: bytes, cuts: list[int] | None = None) -> float | None:
    heard = Speech(RATE_HZ)
    try:
        found = sum(heard.feed(piece) for piece in pieces(data, cuts or []))
        heard.end()
    except TurnFailedError:
        return None
    return found


def seconds_of_question(data: bytes, directory: object) -> float | None:
    path = directory / "q.wav"
    path.write_bytes(data)
    try:
        return questions.read(path)[0].audio_s
    except ChainError:
        return None


def test_what_is_no_riff_file_is_refused_for_a_question(tmp_path):
    assert seconds_of_question(b"RIFX" + file()[4:], tmp_path) is None
    with pytest.raises(wav.WavError, match="no RIFF"):
        wav.read_head(b"hello", strict=True)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


CUTS = st.lists(st.integers(0, 10_000), max_size=30)
NOTE = struct.pack("<4sI", b"LIST", 5) + b"notes\0"
EXTENSIBLE = struct.pack("<HHIH", 22, 16, 0, wav.PCM) + bytes(14)
GOOD = {
    "plain": file(),
    "a note first": file(before=NOTE),
    "extensible": file(kind=wav.EXTENSIBLE, more=EXTENSIBLE),
    "a longer format": file(more=b"\0\0"),
    **{f"size {stated:#x}": file(stated=stated) for stated in wav.OPEN_SIZES},
}
"""Each is 0.1 s of one channel."""


@pytest.mark.parametrize("name", GOOD)
def test_a_file_lasts_as_long_for_every_reader(tmp_path, name):
    data = GOOD[name]
    assert seconds_by_tap(data) == pytest.approx(0.1)
    assert seconds_by_resume(data) == pytest.approx(0.1)
    assert seconds_by_probe(data) == pytest.approx(0.1)
    assert seconds_by_bench(data) == pytest.approx(0.1)
    assert seconds_of_question(data, tmp_path) == pytest.approx(0.1)


def test_a_file_with_fewer_samples_than_stated_is_refused_by_bench_alone(tmp_path):
    data = file(stated=10_000)
    assert seconds_by_tap(data) == seconds_by_resume(data) == seconds_by_probe(data) == pytest.approx(0.1)
    assert seconds_of_question(data, tmp_path) is None
    assert seconds_by_bench(data) is None


def test_what_follows_the_samples_is_not_heard(tmp_path):
    data = file(stated=2400) + NOTE
    assert seconds_by_tap(data) == seconds_by_resume(data) == seconds_by_probe(data) == pytest.approx(0.05)
    assert seconds_of_question(data, tmp_path) == pytest.approx(0.05)


WRONG = {
    "no WAVE": (file().replace(b"WAVE", b"AVI ", 1), "no WAVE"),
    "no format": (b"RIFF\0\0\0\0WAVE" + struct.pack("<4sI", b"data", 4800) + bytes(4800), "without a format"),
    "a short format": (
        file().replace(struct.pack("<4sI", b"fmt ", 16), struct.pack("<4sI", b"fmt ", 15)),
        "15",
    ),
    "ADPCM": (file(kind=2), "format 2"),
    "extensible of ADPCM": (file(kind=wav.EXTENSIBLE, more=EXTENSIBLE.replace(b"\1\0", b"\2\0")), "format 2"),
    "extensible without its kind": (file(kind=wav.EXTENSIBLE), "format 65534"),
    "no rate": (file(rate_hz=0), "0 Hz"),
    "a rate of 1 Hz": (file(rate_hz=1), "1 Hz"),
    "a rate beyond hearing": (file(rate_hz=wav.HIGHEST_HZ + 1), "384001 Hz"),
    "no channel": (file(channels=0), "0 channels"),
    "no bits": (file(bits=0), "0 bits"),
    "another rate of bytes": (
        file().replace(struct.pack("<I", 48_000), struct.pack("<I", 48_001)),
        "48001 bytes",
    ),
    "an endless header": (file(before=struct.pack("<4sI", b"LIST", 0) * 10_000), "more than 65536"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_header_is_refused_in_a_line_where_it_is_judged(tmp_path, name):
    data, said = WRONG[name]
    if name == "an endless header":
        data = data[: wav.MAX_HEADER_BYTES + 1]
    with pytest.raises(wav.WavError, match=said):
        wav.read_head(data, strict=True)
    assert seconds_of_question(data, tmp_path) is None
    heard = Speech(RATE_HZ)
    with pytest.raises(TurnFailedError, match=said):
        heard.feed(data)


@pytest.mark.parametrize("rate_hz", [0.0, 1.0, 1e-308, float("inf"), float("nan"), -1.0])
def test_a_stated_rate_that_is_none_gives_no_endless_speech(rate_hz):
    text = base64.b64encode(bytes(4800)).decode()
    assert duration_ms(text, "pcm16", rate_hz) == pytest.approx(100)
    recording = Recording()
    recording.sound(text, "pcm16", rate_hz)
    if rate_hz:
        with pytest.raises(TranscriptError, match="a sample rate of"):
            recording.wav()
    assert not wav.is_rate(rate_hz)


@given(st.sampled_from(list(GOOD)), CUTS)
def test_a_file_that_comes_in_pieces_is_as_long(name, cuts):
    assert seconds_by_bench(GOOD[name], cuts) == pytest.approx(0.1)


damaged = st.builds(
    lambda data, at, with_: data[: at % len(data)] + with_ + data[at % len(data) + len(with_) :],
    st.sampled_from(list(GOOD.values())).map(lambda data: data[:200]),
    st.integers(0, 199),
    st.binary(min_size=1, max_size=8),
)


@settings(max_examples=300)
@given(damaged | st.binary(max_size=100).map(lambda data: b"RIFF\0\0\0\0WAVE" + data))
def test_a_damaged_file_has_a_length_in_bounds_or_none(data):
    most_s = len(data) / wav.LOWEST_HZ
    assert 0 <= seconds_by_tap(data) <= most_s
    for found in (seconds_by_resume(data), seconds_by_probe(data), seconds_by_bench(data)):
        assert found is None or 0 <= found <= most_s
    head = wav.read_head(data)
    assert 0 <= head.size(len(data)) <= len(data)
    with suppress(wav.WavError):
        assert wav.read_head(data, strict=True) == head


@given(st.binary(max_size=200), st.integers(1, 8), st.integers(wav.LOWEST_HZ, wav.HIGHEST_HZ))
def test_a_header_that_we_write_is_read_by_the_standard_library(samples, channels, rate_hz):
    samples = samples[: len(samples) // (2 * channels) * 2 * channels]
    data = wav.header(rate_hz, channels, len(samples)) + samples
    with wave.open(io.BytesIO(data)) as sound:
        assert (sound.getnchannels(), sound.getframerate(), sound.getsampwidth()) == (channels, rate_hz, 2)
        assert sound.readframes(sound.getnframes()) == samples
    head = wav.read_head(data, strict=True)
    assert (head.at, head.size(len(data))) == (44, len(samples))


def both(body: bytes, cuts: list[int] = ()) -> list[bytes]:
    """The data of all events, which a strict and a lenient reader must agree on."""
    readers = Events(MAX_BYTES), Events(MAX_BYTES, strict=False)
    strict, lenient = (
        [data for piece in pieces(body, list(cuts)) for data in reader.feed(piece)] for reader in readers
    )
    assert strict == lenient
    return strict


def expected(body: bytes) -> list[bytes]:
    """The same by the letter of the specification, slowly."""
    found, data = [], []
    for line in re.split(rb"\r\n|\n|\r", body)[:-1]:
        if not line:
            found += [b"\n".join(data)] if any(data) or len(data) > 1 else []
            data = []
        name, _, value = line.partition(b":")
        if name == b"data" and b":" in line:
            data.append(value.removeprefix(b" "))
    return found


@settings(max_examples=300)
@given(
    st.lists(
        st.sampled_from([b"data:", b"data: ", b"data", b"id: 1", b": ", b"x", b"  ", b"\r", b"\n", b"\r\n"])
        | st.binary(max_size=4),
        max_size=40,
    ).map(b"".join),
    CUTS,
)
def test_any_body_cut_anywhere_gives_the_events_of_the_specification(body, cuts):
    assert both(body, cuts) == expected(body)


@settings(max_examples=20)
@given(st.lists(st.integers(0, 1 << 20), max_size=30))
def test_a_recorded_chat_cut_anywhere_is_the_same(cuts):
    body = sse_recording()
    found = both(body, cuts)
    assert found == expected(body)
    assert found[-1] == sse.DONE


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_every_byte_by_itself(end):
    body = b'data: {"a": 1}' + end + b"data: [DONE]" + end
    assert both(body, list(range(len(body)))) == [b'{"a": 1}', b"[DONE]"]


def test_comments_and_other_fields_are_no_data_and_data_lines_are_joined():
    body = b": hello\n\nevent: x\nid: 4\ndata: one\ndata:two\n\nretry: 5\n\n"
    assert both(body) == [b"one\ntwo"]


def test_an_event_without_an_end_is_not_given():
    assert both(b"data: half") == both(b"data: half\n") == []


def test_an_event_that_comes_in_one_piece_has_no_bound():
    assert len(both(b"data: " + b"x" * 2 * MAX_BYTES + b"\n\n")[0]) == 2 * MAX_BYTES


@pytest.mark.parametrize("piece", [b"x" * 1000, b"x" * (1 << 17), b"\ndata: x" * 1000, b"\ndata:" * 1000])
@pytest.mark.slow
def test_an_event_past_the_bound_is_skipped_and_the_next_one_read(piece):
    most = 1 << 17
    reader = Events(most, strict=False)
    tracemalloc.start()
    try:
        found = reader.feed(b"data: ")
        for _ in range(8 * most // len(piece)):
            found += reader.feed(piece)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    found += reader.feed(b"\n")
    found += reader.feed(b"\ndata: next\n\n")
    assert found == [b"next"]
    assert peak < 4 * most


@pytest.mark.parametrize("piece", [b"x" * 100, b"data: x\n" * 20])
def test_an_event_past_the_bound_is_an_error_for_a_strict_reader(piece):
    events = Events(1000)
    for _ in range(1000 // len(piece)):
        events.feed(piece)
    with pytest.raises(TooLongError, match="more than 1000 bytes"):
        events.feed(piece * 20)


def test_many_short_lines_are_read_in_time_that_grows_with_their_bytes():
    body = b"data: x\r" * 200_000
    assert len(both(body + b"\r")[0]) == 2 * 200_000 - 1
