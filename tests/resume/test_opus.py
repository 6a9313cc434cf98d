"""Frames in Opus: who gets them, what they say, and that what is sent again is the same."""

from __future__ import annotations

import asyncio
import json
import threading
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.asgi import Exchange, chat, frame_count, post, resume, resuming
from helpers.spoken import Speaker, alike, level, spoken
from helpers.waiting import wait_until
from omniwatch import frames
from omniwatch.client.opus import OpusDecoder
from omniwatch.desk.link.virtual import run
from omniwatch.frames import Kind
from omniwatch.media import wav
from omniwatch.resume import opus, protocol
from omniwatch.resume.encoders import BinaryEncoder
from omniwatch.resume.response_reader import own_thread
from omniwatch.settings import Resume as ResumeSettings
from omniwatch.settings import Settings

OPUS = "application/vnd.omniwatch.frames;codec=opus"


def formats(call: Exchange) -> list[dict[str, Any]]:
    return [json.loads(bytes(f.payload)) for f in call.frames if f.kind == Kind.FORMAT]


def packets(call: Exchange) -> list[bytes]:
    return [bytes(f.payload) for f in call.frames if f.kind == Kind.SPEECH]


def decoded(found: list[bytes]) -> bytes:
    decoder = OpusDecoder(24_000, 1, 80)
    return b"".join(bytes(decoder.decode(memoryview(packet)) or b"") for packet in found)


def speaking(speaker: Speaker | None = None, **options: Any) -> Any:
    return resuming(speaker or Speaker(), **options)[0]


def test_who_asks_for_opus_gets_a_packet_a_frame_and_a_twelfth_of_the_bytes() -> None:
    async def main() -> None:
        call = await chat(speaking(), accept=OPUS).over()
        assert call.headers["content-type"] == frames.MEDIA_TYPE
        (form,) = formats(call)
        assert form == {
            "codec": "opus",
            "sample_rate_hz": 24_000,
            "channels": 1,
            "frame_samples": 1920,
            "bitrate": 24_000,
            "lookahead_ms": 6.5,
        }
        # 8 s are 100 whole frames; one more holds what the look-ahead pushed past the last.
        assert call.speech_ids == list(range(101))
        assert call.end_reason == "done"
        assert call.text == Speaker().text(1)
        said = Speaker().speech(1)
        assert len(call.speech) < len(said) / 12
        heard = decoded(packets(call))
        assert len(heard) == 101 * 3840
        assert alike(said, heard) > 0.85, "the same sound, 6.5 ms later"

    run(main())


@pytest.mark.parametrize(
    ("accept", "codec"),
    [
        (OPUS, "opus"),
        (f"{OPUS};bitrate=32000", "opus"),
        (f'{OPUS[:-4]}"opus"', "opus"),
        (f"text/html, {OPUS.upper()}", "opus"),
        (f"{OPUS};bitrate=1", "opus"),
        (f"{OPUS};bitrate=", "opus"),
        (f"{OPUS};bitrate={'9' * 5000}", "opus"),
        (f"{OPUS};bitrate=24000.0;bitrate=x", "opus"),
        (frames.MEDIA_TYPE, "pcm16"),
        (f"{frames.MEDIA_TYPE};codec=mp3", "pcm16"),
        (f"{frames.MEDIA_TYPE};codec=", "pcm16"),
        (f"{frames.MEDIA_TYPE};codec", "pcm16"),
        (f"{frames.MEDIA_TYPE};codec=opus2;=;;", "pcm16"),
        (f"{OPUS};q=0, {frames.MEDIA_TYPE}", "pcm16"),
        (f"{OPUS};codec=opus;codec=opus", "opus"),
        (f"{frames.MEDIA_TYPE};codec=mp3;codec=opus", "opus"),
        (f"{OPUS};codec=mp3", "pcm16"),
        (f"{OPUS}, {OPUS};bitrate=8000", "opus"),
        (f"{frames.MEDIA_TYPE}, {OPUS}", "opus"),
        (f"{OPUS};bitrate=24000;bitrate=32000", "opus"),
        (f'{OPUS};bitrate="32000"', "opus"),
        *[(f"{OPUS};bitrate={odd}", "opus") for odd in ("0", "-24000", "24000.5", "1e9", "0x5dc0", "\xb2")],
        (f"{frames.MEDIA_TYPE}\t;\tcodec=opus\t;\tbitrate=32000", "opus"),
        (f'{frames.MEDIA_TYPE};codec="opus', "opus"),
        (f"{frames.MEDIA_TYPE};codec='opus'", "pcm16"),
        (f'{frames.MEDIA_TYPE};note="a,b";codec=opus', "pcm16"),
        (f"{frames.MEDIA_TYPE};codec=op\xfcs", "pcm16"),
        (f"{frames.MEDIA_TYPE};codec={'opus' * 2500}", "pcm16"),
        (f"{OPUS};x={'y' * 10_000}", "opus"),
        (f"{'text/html, ' * 1000}{OPUS}", "opus"),
        (f"{OPUS}{';' * 10_000}", "opus"),
    ],
    ids=lambda value: value[:80],
)
def test_a_codec_asked_for_in_any_way_is_answered_in_the_format_frame(accept: str, codec: str) -> None:
    async def main() -> None:
        call = await chat(speaking(Speaker(speech_s=0.5)), accept=accept).over()
        (form,) = formats(call)
        assert form["codec"] == codec
        if codec == "opus":
            assert form["bitrate"] == (32_000 if "32000" in accept else 24_000)

    run(main())


def test_events_are_never_in_opus() -> None:
    async def main() -> None:
        call = await chat(
            speaking(Speaker(speech_s=0.5)), accept="text/event-stream;omniwatch=resume;codec=opus"
        ).over()
        assert b'"content":"UklGR' in call.body, "WAV, as the model server has it"

    run(main())


def test_the_setting_turns_it_off() -> None:
    async def main() -> None:
        app = speaking(Speaker(speech_s=0.5), settings=Settings(resume=ResumeSettings(opus=False)))
        (form,) = formats(await chat(app, accept=OPUS).over())
        assert form["codec"] == "pcm16"

    run(main())


def test_without_its_library_speech_is_pcm(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(opus, "import_module", without)
    opus.is_available.cache_clear()

    async def main() -> None:
        call = await chat(speaking(Speaker(speech_s=0.5)), accept=OPUS).over()
        (form,) = formats(call)
        assert form["codec"] == "pcm16"
        assert call.speech == Speaker(speech_s=0.5).speech(1)

    try:
        run(main())
    finally:
        opus.is_available.cache_clear()


@pytest.mark.parametrize("rate_hz", [16_000, 22_050, 44_100])
def test_speech_of_another_rate_is_pcm(rate_hz: int) -> None:
    async def main() -> None:
        (form,) = formats(await chat(speaking(Speaker(speech_s=0.5, rate_hz=rate_hz)), accept=OPUS).over())
        assert (form["codec"], form["sample_rate_hz"]) == ("pcm16", rate_hz)

    run(main())


@pytest.mark.parametrize(("rate_hz", "channels"), opus.FORMATS)
def test_each_format_is_encoded_and_decoded(rate_hz: int, channels: int) -> None:
    said = spoken(0.8, rate_hz, channels)
    encoder = opus.PacketEncoder(rate_hz, channels, 80, 32_000)
    size = rate_hz * 8 // 100 * 2 * channels
    found = [encoder.encode(memoryview(said)[at : at + size]) for at in range(0, len(said), size)]
    decoder = OpusDecoder(rate_hz, channels, 80)
    heard = b"".join(bytes(decoder.decode(memoryview(packet)) or b"") for packet in found)
    assert len(heard) == len(said)
    assert level(heard) == pytest.approx(level(said), rel=0.15)


def test_the_end_of_speech_is_not_cut_off() -> None:
    # 120 ms: the second frame is half full, so the look-ahead fits. 160 ms: it does not, and takes one more.
    for seconds, count in ((0.12, 2), (0.16, 3)):
        said = spoken(seconds)
        encoder = opus.PacketEncoder(24_000, 1, 80, 24_000)
        found = [encoder.encode(memoryview(said)[at : at + 3840]) for at in range(0, len(said), 3840)]
        last = encoder.rest()
        assert len(found) + (last is not None) == count


def test_what_is_sent_again_is_the_same_bytes() -> None:
    async def main() -> None:
        app = speaking(Speaker(speech_s=4.0))
        whole = await chat(app, accept=OPUS).over()
        call = await chat(app, accept=OPUS).until(frame_count(20))
        call.leave()
        await call.over()
        stream = call.headers["x-omni-resume"]
        back = await resume(app, stream, 9).over()
        assert packets(back) == packets(whole)[10:]
        again = await post(app, "/v1/rtx", {"stream": stream, "from_id": 5, "count": 10}).over()
        assert [bytes(f.payload) for f in again.frames if f.kind == Kind.SPEECH] == packets(whole)[5:15]

    run(main())


def test_a_turn_of_three_formats_is_encoded_as_far_as_it_can_be() -> None:
    encoder = BinaryEncoder(80, 24_000)
    found: list[tuple[int, str]] = []
    for rate_hz in (24_000, 16_000, 48_000):
        sound = spoken(0.24, rate_hz)
        content = b64encode(wav.header(rate_hz, 1, len(sound)) + sound).decode()
        body = {"choices": [{"index": 0, "delta": {"content": content}}], "modality": "audio"}
        for piece in encoder.pieces(json.dumps(body).encode()):
            if piece.kind == Kind.FORMAT:
                form = json.loads(bytes(piece.payload))
                found.append((form["sample_rate_hz"], form["codec"]))
    assert found == [(24_000, "opus"), (16_000, "pcm16"), (48_000, "opus")]


def test_the_event_loop_does_not_encode() -> None:
    """In real time and with a thread: each packet is made off the loop, and in order."""
    made_in: set[str] = set()

    async def main() -> None:
        app = resuming(Speaker(speech_s=1.0, speed=1000.0, first_s=0.0), thread=own_thread)[0]
        call = await chat(app, accept=OPUS).over()
        assert call.speech_ids == list(range(len(packets(call))))
        assert alike(Speaker(speech_s=1.0).speech(1), decoded(packets(call))) > 0.85

    encode = opus.PacketEncoder.encode

    def noted(self: opus.PacketEncoder, samples: memoryview) -> bytes:
        made_in.add(threading.current_thread().name)
        return encode(self, samples)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opus.PacketEncoder, "encode", noted)
        asyncio.run(main())
    assert made_in
    assert all(name.startswith("omniwatch-encoder") for name in made_in)
    wait_until(lambda: not any(t.name.startswith("omniwatch-encoder") for t in threading.enumerate()))


def test_a_client_that_hangs_up_while_a_frame_is_encoded_ends_its_turn() -> None:
    """The thread has the encoder then: the turn ends without it, and the thread ends by itself."""
    encoding, go_on = threading.Event(), threading.Event()
    encode = opus.PacketEncoder.encode

    def held(self: opus.PacketEncoder, samples: memoryview) -> bytes:
        encoding.set()
        assert go_on.wait(20)
        return encode(self, samples)

    async def main() -> None:
        app = resuming(Speaker(speech_s=2.0, speed=1000.0, first_s=0.0), thread=own_thread)[0]
        call = await chat(app, accept=OPUS).until(lambda call: bool(call.headers))
        await asyncio.to_thread(encoding.wait, 20)
        stream = call.headers["x-omni-resume"]
        await Exchange(app, "DELETE", "/v1/resume", headers={"X-Omni-Resume": stream}).over()
        call.leave()
        await call.over()
        assert len(app.store) == 0
        go_on.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opus.PacketEncoder, "encode", held)
        asyncio.run(asyncio.wait_for(main(), 60))


WORDS = [
    *("application/vnd.omniwatch.frames", "text/event-stream", "codec", "opus", "bitrate", "24000", "32000", "q", "0"),
    *(";", ";", ",", "=", "=", '"', " ", "\t", "\\", "OPUS", "omniwatch", "*/*", "\xff", "\0", "9" * 400),
]  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), max_size=40).map("".join))
def test_a_header_of_any_words_is_read(accept: str) -> None:
    headers = [(b"accept", accept.encode("latin-1"))]
    asked = protocol.wanted_opus(headers)
    assert asked in (None, *opus.BITRATES)
    assert asked is None or protocol.wanted(headers) == "binary"


def test_of_several_headers_the_first_counts() -> None:
    plain = frames.MEDIA_TYPE.encode()
    assert protocol.wanted_opus([(b"accept", plain), (b"Accept", OPUS.encode())]) is None
    assert protocol.wanted_opus([(b"Accept", OPUS.encode()), (b"accept", plain)]) == 24_000


def test_bit_rates_are_read_from_the_header() -> None:
    assert protocol.wanted_opus([(b"accept", OPUS.encode())]) == 24_000
    assert protocol.wanted_opus([(b"accept", f"{OPUS};bitrate=32000".encode())]) == 32_000
    assert protocol.wanted_opus([]) is None
