"""Speech in Opus at the client: PCM as before, losses concealed, nothing that a server sends does harm."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.asgi import resuming
from helpers.clients import OPUS, audible, expand, packet, run_python, sounds_as
from helpers.flaky_network import CuttingNetwork, Listener
from helpers.spoken import Speaker, alike, level, spoken
from omniwatch import frames
from omniwatch.client import Client, Config, opus
from omniwatch.client.reorder_buffer import MAX_CONCEALED, ReorderBuffer
from omniwatch.desk.link.virtual import run
from omniwatch.frames import Frame, Kind
from omniwatch.resume.opus import PacketEncoder

FORMAT = {"codec": "opus", "sample_rate_hz": 24_000, "channels": 1, "frame_samples": 1920}
FRAME = 3840


def packets(seconds: float = 2.0) -> list[bytes]:
    said, encoder = spoken(seconds), PacketEncoder(24_000, 1, 80, 24_000)
    return [encoder.encode(memoryview(said)[at : at + FRAME]) for at in range(0, len(said), FRAME)]


class Heard(Listener):
    """Takes a ReorderBuffer's calls."""

    def __init__(self) -> None:
        super().__init__()
        self.formats: list[dict[str, Any]] = []
        self.play_at: list[float] = []

    def format(self, sound: dict[str, Any]) -> None:
        self.formats.append(sound)

    def audio(self, frame_id: int, payload: memoryview, play_at: float) -> None:
        super().audio(frame_id, payload, play_at)
        self.play_at.append(play_at)

    def rtx(self, from_id: int, count: int) -> None:
        """Ask for nothing again: what is missing stays so."""


def frame(frame_id: int, payload: bytes, kind: Kind = Kind.SPEECH, part: int = 0) -> Frame:
    (found,) = frames.Decoder().feed(frames.encode(frame_id, payload, kind=kind, part=part))
    return found


def begun(sound: dict[str, Any] | None = None) -> tuple[ReorderBuffer, Heard]:
    heard = Heard()
    buffer = ReorderBuffer(heard, Config(client_win=2000))
    buffer.place = (2**32 - 1, 0)
    buffer.take(0.0, frame(2**32 - 1, json.dumps(sound or FORMAT).encode(), Kind.FORMAT, 1))
    return buffer, heard


@pytest.mark.parametrize("vector", OPUS["vectors"], ids=lambda vector: vector["name"])
def test_vectors(vector: dict[str, Any]) -> None:
    got = audible(run_python(map(expand, vector["script"])))
    assert len(got) == len(vector["expect"])
    for one, other in zip(got, vector["expect"], strict=True):
        assert sounds_as(one, other), f"{one}, not {other}"


def test_a_packet_of_another_length_is_not_what_is_concealed_with() -> None:
    decoder = opus.OpusDecoder(24_000, 1, 20)
    decoder.decode(memoryview(packet("short.0")))
    quiet = decoder.conceal()
    decoder = opus.OpusDecoder(24_000, 1, 20)
    decoder.decode(memoryview(packet("short.0")))
    assert decoder.decode(memoryview(packet("mono.1"))) is None, "a frame of 80 ms"
    assert decoder.conceal() == quiet


def test_the_application_gets_pcm_as_before() -> None:
    buffer, heard = begun()
    for number, payload in enumerate(packets()):
        buffer.take(0.0, frame(number, payload))
    assert heard.formats == [FORMAT | {"codec": "pcm16"}]
    assert [len(payload or b"") for _, payload in heard.heard] == [FRAME] * 25
    assert alike(spoken(2.0), heard.speech) > 0.85
    assert heard.play_at == pytest.approx([0.08 * (1 + i) for i in range(25)])
    assert (buffer.spoken, buffer.missed) == (25, 0)


def test_frames_that_are_lost_are_concealed_with_the_sound_before_them_fading() -> None:
    buffer, heard = begun()
    found = packets(4.0)
    for number in (*range(10), *range(13, 20)):
        buffer.take(0.0, frame(number, found[number]))
    buffer.settle(0.0)
    buffer.settle(2.0)
    assert [frame_id for frame_id, _ in heard.heard] == list(range(20))
    assert None not in [payload for _, payload in heard.heard], "the application has nothing to conceal"
    levels = [level(payload or b"") for _, payload in heard.heard]
    assert levels[10] > 0.1 * levels[9], "not silence"
    assert levels[12] < levels[10], "and it fades"
    assert (buffer.spoken, buffer.missed) == (17, 3)


def test_a_long_loss_is_concealed_for_two_seconds_and_then_left_to_the_application() -> None:
    buffer, heard = begun()
    found = packets()
    buffer.take(0.0, frame(0, found[0]))
    buffer.take(0.0, frame(1001, found[1]))
    buffer.settle(0.0)
    buffer.settle(100.0)
    concealed = [frame_id for frame_id, payload in heard.heard if payload is not None]
    assert concealed == [*range(1 + MAX_CONCEALED), 1001]
    assert len(heard.heard) == 1002
    assert buffer.missed == 1000


def test_what_is_no_packet_is_lost_and_concealed() -> None:
    buffer, heard = begun()
    found = packets()
    junk = [b"", b"\xff" * 40, bytes(4000), bytes([found[0][0]]), b"\x00\x00", found[0] * 20, bytes(10_000)]
    for number, payload in enumerate([found[0], *junk, found[1]]):
        buffer.take(0.0, frame(number, payload))
    assert [frame_id for frame_id, _ in heard.heard] == list(range(2 + len(junk)))
    assert {len(payload or b"") for _, payload in heard.heard} == {FRAME}
    assert buffer.missed + buffer.spoken == 2 + len(junk)
    assert buffer.missed >= 5, "some junk is a packet to a decoder"


def test_before_anything_was_decoded_there_is_nothing_to_conceal_with() -> None:
    buffer, heard = begun()
    buffer.take(0.0, frame(0, b"\xff" * 40))
    assert heard.heard == [(0, None)]
    assert buffer.missed == 1


def test_a_codec_that_changes_within_a_turn() -> None:
    buffer, heard = begun()
    found = packets()
    buffer.take(0.0, frame(0, found[0]))
    pcm = FORMAT | {"codec": "pcm16"}
    buffer.take(0.0, frame(0, json.dumps(pcm).encode(), Kind.FORMAT, 1))
    buffer.take(0.0, frame(1, b"\x01\x02" * 1920))
    buffer.take(0.0, frame(1, json.dumps(FORMAT).encode(), Kind.FORMAT, 1))
    buffer.take(0.0, frame(2, found[1]))
    assert [len(payload or b"") for _, payload in heard.heard] == [FRAME] * 3
    assert heard.heard[1] == (1, b"\x01\x02" * 1920)
    assert len(heard.formats) == 3


@pytest.mark.parametrize("odd", [{"channels": 7}, {"sample_rate_hz": 44_100}, {"channels": 2}])
def test_opus_of_a_format_that_was_never_offered_ends_the_turn(odd: dict[str, Any]) -> None:
    buffer, heard = begun(FORMAT | odd)
    assert buffer.ended == "refused: odd format"
    assert heard.formats == []


@pytest.mark.slow
@given(
    st.lists(st.one_of(st.binary(max_size=200), st.sampled_from([b"", b"junk"])), max_size=12), st.randoms()
)
def test_no_payload_raises_or_moves_the_time(payloads: list[bytes], luck: random.Random) -> None:
    buffer, heard = begun()
    found = packets(0.4)
    given_frames = [luck.choice([payload, luck.choice(found)]) for payload in payloads]
    for number, payload in enumerate(given_frames):
        buffer.take(0.0, frame(number, payload))
    assert [frame_id for frame_id, _ in heard.heard] == list(range(len(given_frames)))
    assert buffer.playout.dry_at == pytest.approx(0.08 + 0.08 * len(given_frames)) or not given_frames


def test_a_turn_goes_on_through_cuts_as_in_pcm() -> None:
    async def main() -> None:
        app = resuming(Speaker(speech_s=8.0))[0]
        network = CuttingNetwork(app, random.Random(3), mean_bytes=3_000, outage_s=lambda _: 0.5)
        listener = Listener()
        client = Client("http://server", listener, connect=network.connect, jitter=random.Random(3).random)
        summary = await client.speak({"seed": 1})
        assert summary.reason == "done"
        assert len(summary.resumptions) >= 3
        assert [frame_id for frame_id, _ in listener.heard] == list(range(101))
        assert alike(Speaker(speech_s=8.0).speech(1), listener.speech) > 0.85

    run(main())


def test_a_client_without_the_extra_asks_for_pcm(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(opus, "import_module", without)
    opus.is_available.cache_clear()

    async def main() -> None:
        app = resuming(Speaker(speech_s=0.5))[0]
        network = CuttingNetwork(app, random.Random(1), mean_bytes=1 << 28, outage_s=lambda _: 0.0)
        listener = Listener()
        await Client("http://server", listener, connect=network.connect).speak({"seed": 1})
        assert listener.speech == Speaker(speech_s=0.5).speech(1)

    try:
        run(main())
    finally:
        opus.is_available.cache_clear()
