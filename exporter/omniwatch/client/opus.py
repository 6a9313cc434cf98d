"""Decode frames in Opus to PCM16, and conceal those that were lost, by PyAV (the extra `opus`)."""

from __future__ import annotations

from array import array
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import av

FORMATS = ((24_000, 1), (48_000, 1), (48_000, 2))
"""(samples a second, channels) of the speech that a server sends in Opus."""
DECODED_HZ = 48_000
"""Samples a second that PyAV's decoder gives, whatever was encoded."""
MAX_PACKET_BYTES = 6 * 1276
"""Longest packet of 120 ms (RFC 6716), bytes."""
_FRAME_MS = (10, 20, 40, 60) * 3 + (10, 20) * 2 + (2.5, 5, 10, 20) * 4
"""Length of one Opus frame by the configuration in a packet's first byte, ms (RFC 6716, 3.1)."""
_CONFIG, _COUNTED = 0b1111_1000, 0b11
"""Bits of a packet's first byte: its configuration, and the code for a count of frames that follows."""


class SpeechDecoder(Protocol):
    """Decodes the frames of one turn from one format frame to the next, in their order."""

    def decode(self, payload: memoryview) -> memoryview | None:
        """Return a frame's PCM16; None for what is no frame of this format."""

    def conceal(self) -> memoryview | None:
        """Return PCM16 in place of a frame that is lost; None where nothing was decoded before."""


@lru_cache(maxsize=1)
def is_available() -> bool:
    """Whether this Python has PyAV with libopus."""
    try:
        import_module("av").codec.Codec("libopus", "r")
    except (ImportError, ValueError):
        return False
    return True


def decoder_of(sound: dict[str, Any], frame_ms: float) -> SpeechDecoder | None:
    """Return a decoder for the speech that a format frame describes; None where it cannot be decoded here."""
    if sound.get("codec") != "opus" or not is_available():
        return None
    if (sound["sample_rate_hz"], sound["channels"]) not in FORMATS:
        return None
    return OpusDecoder(sound["sample_rate_hz"], sound["channels"], frame_ms)


class OpusDecoder:
    """Decodes packets of `frame_ms` each."""

    def __init__(self, rate_hz: int, channels: int, frame_ms: float) -> None:
        self._av = import_module("av")
        context: av.AudioCodecContext = self._av.CodecContext.create("libopus", "r")
        context.sample_rate, context.layout = DECODED_HZ, "mono" if channels == 1 else "stereo"
        context.open()
        self._context = context
        self._channels = channels
        self._frame_ms = frame_ms
        self._step = DECODED_HZ // rate_hz
        self._samples = round(DECODED_HZ * frame_ms / 1000)
        self._config: int | None = None

    def decode(self, payload: memoryview) -> memoryview | None:
        """Return a frame's PCM16; None for what is no packet of this length."""
        if not 0 < len(payload) <= MAX_PACKET_BYTES or _length_ms(payload) != self._frame_ms:
            return None
        pcm = self._decoded(bytes(payload))
        if pcm is not None:
            self._config = payload[0] & _CONFIG
        return pcm

    def conceal(self) -> memoryview | None:
        """Return what the decoder makes of a frame that is lost: the sound before it, fading."""
        if self._config is None:
            return None
        # A packet whose frames are empty stands for frames that were lost (RFC 6716, 3.2.1 and 4.4).
        count = round(self._frame_ms / _FRAME_MS[self._config >> 3])
        return self._decoded(bytes((self._config | _COUNTED, max(1, count))))

    def _decoded(self, packet: bytes) -> memoryview | None:
        try:
            frames = self._context.decode(self._av.Packet(packet))
        except self._av.FFmpegError:
            return None
        if sum(frame.samples for frame in frames) != self._samples:
            return None
        size = 2 * self._channels
        sound = b"".join(bytes(frame.planes[0])[: frame.samples * size] for frame in frames)
        if self._step == 1:
            return memoryview(sound)
        # Speech of a lower rate was encoded without the higher frequencies, so leaving out samples needs no filter.
        return memoryview(array("h", sound)[:: self._step].tobytes())


def _length_ms(packet: memoryview) -> float:
    """Return the length that a packet states, ms. One of another length would spoil what the decoder conceals losses with."""
    code = packet[0] & _COUNTED
    count = (1, 2, 2, packet[1] & 0x3F if len(packet) > 1 else 0)[code]
    return count * _FRAME_MS[packet[0] >> 3]
