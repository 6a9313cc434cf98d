"""Tell how much of a turn's speech can be played, from its bytes as they come: WAV or bare 16-bit samples."""

from __future__ import annotations

from omniwatch.desk.probe import TurnFailedError
from omniwatch.media import wav


class Speech:
    """Speech of one source, in pieces of any size. A WAV may be cut anywhere; another may follow it.

    `rate_hz` is what the server said beside the sound, or is known of it, with one channel. With `stated`, a WAV's header
    must agree with it; without, the header overrules it.
    """

    def __init__(self, rate_hz: float, *, stated: bool = False) -> None:
        self._rate_hz = rate_hz
        self._stated = stated
        self._head = bytearray()
        self._in_wav = False
        self._bytes_per_s = 0.0
        self._frame_bytes = 2
        self._left: int | None = None
        self._part = 0

    def state(self, rate_hz: float | None) -> None:
        """Take what the server says beside the next piece."""
        if rate_hz:
            if not wav.is_rate(rate_hz):
                raise TurnFailedError("malformed", f"a sample rate of {rate_hz:g} Hz")
            self._rate_hz, self._stated = rate_hz, True

    def feed(self, piece: bytes) -> float:
        """Return the seconds that the piece adds to what can play. Raises TurnFailedError for a header that does not hold."""
        seconds = 0.0
        while piece:
            if not self._in_wav and (self._head or piece[:1] == b"R"):
                piece = self._header(piece)
                continue
            take = len(piece) if self._left is None else min(self._left, len(piece))
            seconds += self._samples(take)
            if self._left is not None:
                self._left -= take
                if not self._left:
                    self._in_wav, self._left = False, None
            piece = piece[take:]
        return seconds

    def next_file(self) -> None:
        """Say that the next piece begins a file of its own. Raises TurnFailedError where the one before is not whole."""
        self.end()
        self._in_wav, self._left, self._part = False, None, 0

    def end(self) -> None:
        """Say that nothing more comes. Raises TurnFailedError where something is missing."""
        if self._head:
            raise TurnFailedError("cut", "the sound ended within its WAV header")
        if self._in_wav and self._left:
            raise TurnFailedError("cut", f"half a WAV: {self._left} bytes fewer than its header says")

    def _samples(self, size: int) -> float:
        per_s = self._bytes_per_s if self._in_wav else self._rate_hz * 2
        frame = self._frame_bytes if self._in_wav else 2
        whole, self._part = divmod(self._part + size, frame)
        return whole * frame / per_s

    def _header(self, piece: bytes) -> bytes:
        """Take a WAV's head; return what follows it."""
        self._head += piece
        head = bytes(self._head)
        if not b"RIFF".startswith(head[:4]):
            # Bare samples that happen to begin with the same byte.
            self._head.clear()
            self._in_wav, self._left = True, None
            self._bytes_per_s, self._frame_bytes = self._rate_hz * 2, 2
            return head
        try:
            read = wav.read_head(head, strict=True)
        except wav.WavError as error:
            raise TurnFailedError("malformed", str(error)) from error
        form = read.format
        if form is not None and self._stated and form.rate_hz != self._rate_hz:
            raise TurnFailedError(
                "malformed", f"the server says {self._rate_hz:g} Hz, its WAV header {form.rate_hz} Hz"
            )
        if form is None or not read.whole:
            return b""
        self._head.clear()
        self._in_wav, self._part, self._left = True, 0, read.stated_bytes
        self._bytes_per_s, self._frame_bytes = float(form.bytes_per_s), form.frame_bytes
        return head[read.at :]
