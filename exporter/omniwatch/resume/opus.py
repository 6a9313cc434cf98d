"""Encode speech as Opus, one packet a frame, by PyAV, which vLLM-Omni brings with libopus in it."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import av

BITRATES = (24_000, 32_000)
"""Bits a second that a client may ask for; the first where it asks for none, or for another."""
FORMATS = ((24_000, 1), (48_000, 1), (48_000, 2))
"""(samples a second, channels) of the speech that is encoded; other speech is sent as PCM16."""
PACKET_MS = (20, 40, 60, 80, 100, 120)
"""Lengths of a frame that fit one packet."""
HEAD_PRE_SKIP = slice(10, 12)
"""Where the header of an Opus stream (RFC 7845) states the look-ahead, in samples of 48 kHz."""


@lru_cache(maxsize=1)
def is_available() -> bool:
    """Whether this Python has PyAV with libopus. The first call imports it, which takes a second on a board."""
    try:
        import_module("av").codec.Codec("libopus", "w")
    except (ImportError, ValueError):
        return False
    return True


def fits(rate_hz: int, channels: int, frame_ms: float) -> bool:
    """Whether frames of such speech can be packets here."""
    return (rate_hz, channels) in FORMATS and frame_ms in PACKET_MS and is_available()


class PacketEncoder:
    """Encodes the frames of one turn, in their order. What is heard comes `lookahead_ms` later than in PCM."""

    def __init__(self, rate_hz: int, channels: int, frame_ms: float, bitrate: int) -> None:
        self._av = import_module("av")
        self._layout = "mono" if channels == 1 else "stereo"
        self._rate_hz = rate_hz
        self._bytes = round(rate_hz * frame_ms / 1000) * 2 * channels
        context: av.AudioCodecContext = self._av.CodecContext.create("libopus", "w")
        context.sample_rate, context.layout, context.format = rate_hz, self._layout, "s16"
        context.bit_rate = bitrate
        context.options = {"frame_duration": f"{frame_ms:g}", "application": "voip"}
        context.open()
        self._context = context
        pre_skip = int.from_bytes((context.extradata or b"")[HEAD_PRE_SKIP], "little")
        self.lookahead_ms = pre_skip / 48
        self._lookahead_bytes = round(self.lookahead_ms * rate_hz / 1000) * 2 * channels
        self._silence_bytes = 0

    def encode(self, samples: memoryview) -> bytes:
        """Return the packet of one frame; one that is shorter is filled with silence."""
        self._silence_bytes = self._bytes - len(samples)
        frame = self._av.AudioFrame(
            format="s16", layout=self._layout, samples=self._bytes // (2 * len(self._context.layout.channels))
        )
        frame.sample_rate = self._rate_hz
        frame.planes[0].update(bytes(samples) + bytes(self._silence_bytes))
        (packet,) = self._context.encode(frame)
        return bytes(packet)

    def rest(self) -> bytes | None:
        """Return the packet that holds the end of the speech, where the look-ahead has pushed it past the last frame."""
        if self._silence_bytes >= self._lookahead_bytes:
            return None
        return self.encode(memoryview(b""))
