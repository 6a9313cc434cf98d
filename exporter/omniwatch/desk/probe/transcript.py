"""Transcribe what was heard by a speech recognition server, and count the words that differ from the text."""

from __future__ import annotations

import binascii
import json
import secrets
from dataclasses import dataclass

from omniwatch.desk.probe.target import Target
from omniwatch.desk.probe.words import word_error_rate, words_of
from omniwatch.media import wav
from omniwatch.system import http
from omniwatch.system.terminal import one_line

PATH = "/v1/audio/transcriptions"
MAX_ANSWER_BYTES = 2**20
MAX_WORDS = 5_000
"""Words of a text that is compared: half an hour of speech. The comparison takes time as the product of both."""
SAMPLE_RATE_HZ = 24_000
"""Of bare samples, where nothing else is stated."""


class TranscriptError(Exception):
    """There is no transcript."""


@dataclass(frozen=True)
class Words:
    """What a turn's text says and what its speech was heard to say; `error` says why there is no transcript."""

    said: str
    heard: str | None = None
    errors: int = 0
    count: int = 0
    error: str | None = None

    @property
    def rate(self) -> float | None:
        """The word error rate: substitutions, deletions and insertions by words said. Above 1 where much was added."""
        return self.errors / self.count if self.heard is not None and self.count else None


class Recording:
    """The text of a turn and the speech that came with it, as 16-bit samples of one channel."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._samples = bytearray()
        self._rate_hz = SAMPLE_RATE_HZ
        self._error: str | None = None

    def text(self, piece: str | None) -> None:
        """Take a piece of the text."""
        self._text.append(piece or "")

    def sound(self, piece: str | None, encoding: str | None = None, rate_hz: float | None = None) -> None:
        """Take a piece of base64 speech: WAV or bare 16-bit samples."""
        try:
            content = binascii.a2b_base64(piece or "")
        except ValueError:
            self._error = "the speech is no base64"
            return
        if content.startswith(b"RIFF"):
            self._file(content)
        elif encoding in (None, "pcm", "pcm16", "wav"):
            self._state(rate_hz or self._rate_hz)
            self._samples += content
        elif content:
            self._error = f"speech as {encoding} is not understood"

    def _file(self, content: bytes) -> None:
        head = wav.read_head(content)
        form = head.format
        if form is None or not form.is_pcm16 or form.channels != 1:
            self._error = "a WAV that is not 16-bit PCM of one channel is not understood"
        elif head.whole:
            self._state(form.rate_hz)
            self._samples += content[head.at : head.at + head.size(len(content))]

    def _state(self, rate_hz: float) -> None:
        if wav.is_rate(rate_hz):
            self._rate_hz = int(rate_hz)
        else:
            self._error = f"a sample rate of {rate_hz:g} Hz"

    def said(self) -> str:
        """Return the text."""
        return "".join(self._text).strip()

    def wav(self) -> bytes:
        """Return the speech as one file. Raises TranscriptError."""
        if self._error is not None:
            raise TranscriptError(self._error)
        samples = bytes(self._samples[: len(self._samples) // 2 * 2])
        return wav.header(self._rate_hz, 1, len(samples)) + samples


class Transcriber:
    """A speech recognition behind OpenAI's API."""

    def __init__(self, target: Target, timeout_s: float) -> None:
        self._target = target
        self._timeout_s = timeout_s

    def words(self, recording: Recording) -> Words:
        """Return what was said and heard. Never raises for what the server or the network does."""
        said = recording.said()
        try:
            heard = self._transcribe(recording.wav())
            for text in (said, heard):
                if len(words_of(text)) > MAX_WORDS:
                    raise TranscriptError(f"a text of more than {MAX_WORDS} words")
        except TranscriptError as error:
            return Words(said, error=str(error))
        errors, count = word_error_rate(said, heard)
        return Words(said, heard, errors, count, None if count else "no text came with the speech")

    def _transcribe(self, file: bytes) -> str:
        boundary = secrets.token_hex(16)
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="response_format"\r\n\r\njson\r\n'
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="heard.wav"\r\n'
            "Content-Type: audio/wav\r\n\r\n"
        )
        body = head.encode() + file + f"\r\n--{boundary}--\r\n".encode()
        sent = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        try:
            with http.ask(
                self._target.base + PATH, timeout_s=self._timeout_s, body=body, headers=sent
            ) as answer:
                if answer.status != 200:
                    raise TranscriptError(f"POST {PATH}: {answer.status} {one_line(answer.reason)}")
                content = answer.read(MAX_ANSWER_BYTES)
            text = json.loads(content).get("text")
        except http.HttpError as error:
            raise TranscriptError(f"POST {PATH}: {error}") from error
        except (ValueError, AttributeError, RecursionError) as error:
            raise TranscriptError(f"POST {PATH}: no transcription: {content[:60]!r}") from error
        if not isinstance(text, str):
            raise TranscriptError(f"POST {PATH}: a transcription without a text")
        return text.strip()
