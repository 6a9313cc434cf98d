"""Have a turn with three servers: ASR, LLM and TTS, the answer spoken sentence by sentence while it is written."""

from __future__ import annotations

import asyncio
import re

from omniwatch.desk.chain.calls import Calls, Server, multipart, post, post_json
from omniwatch.desk.chain.native import read_event
from omniwatch.desk.chain.questions import Asked, picture_part
from omniwatch.desk.chain.sentences import Sentences
from omniwatch.desk.chain.sound import Speech
from omniwatch.desk.chain.timeline import MAX_TEXT, Timeline
from omniwatch.desk.probe import TurnFailedError
from omniwatch.tap.audio import SAMPLE_RATE_HZ

ASR_PATH, LLM_PATH, TTS_PATH = "/v1/audio/transcriptions", "/v1/chat/completions", "/v1/audio/speech"
_RATE = re.compile(r"rate=(\d+)")
_SOUND_KINDS = ("audio/", "application/octet-stream")


class PartFailedError(TurnFailedError):
    """A part of the cascade failed; `part` says which."""

    def __init__(self, part: str, error: TurnFailedError) -> None:
        super().__init__(error.outcome, str(error))
        self.part = part


class Cascade:
    """A client of the cascade. `pictures` False: the LLM takes text only."""

    def __init__(
        self,
        calls: Calls,
        asr: Server,
        llm: Server,
        tts: Server,
        *,
        pictures: bool = True,
        tts_rate_hz: float = SAMPLE_RATE_HZ,
    ) -> None:
        self._calls = calls
        self._asr, self._llm, self._tts = asr, llm, tts
        self._pictures = pictures
        self._tts_rate_hz = tts_rate_hz

    async def turn(self, asked: Asked, line: Timeline) -> None:
        """Ask and listen to the end. Raises PartFailedError."""
        try:
            words = await self._transcribe(asked, line)
        except TurnFailedError as error:
            raise PartFailedError("asr", error) from error
        spoken: asyncio.Queue[str | None] = asyncio.Queue()
        speaking = asyncio.ensure_future(self._speak(spoken, line))
        writing = asyncio.ensure_future(self._write(words, asked, line, spoken))
        try:
            done, _ = await asyncio.wait((writing, speaking), return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in (writing, speaking):
                task.cancel()
            await asyncio.gather(writing, speaking, return_exceptions=True)

    async def _transcribe(self, asked: Asked, line: Timeline) -> str:
        named = {"model": self._asr.model} if self._asr.model else {}
        further = {name: str(value) for name, value in self._asr.body.items()}
        content, kind = multipart(
            {**named, "response_format": "json", **further}, f"{asked.name}.wav", asked.wav
        )
        async with post(self._calls, self._asr, ASR_PATH, content, kind, "application/json") as answer:
            line.asked_t = answer.sent_t
            found = await answer.json()
            line.transcript_t = self._calls.clock()
        text = found.get("text") if isinstance(found, dict) else None
        if not isinstance(text, str):
            raise TurnFailedError("malformed", "a transcription without a text")
        if len(text) > MAX_TEXT:
            raise TurnFailedError("malformed", f"a transcription of more than {MAX_TEXT} characters")
        line.transcript = text.strip()
        if not line.transcript:
            raise TurnFailedError("silent", "an empty transcript")
        return line.transcript

    async def _write(
        self, words: str, asked: Asked, line: Timeline, spoken: asyncio.Queue[str | None]
    ) -> None:
        pictures = picture_part(asked) if self._pictures else []
        content = [*pictures, {"type": "text", "text": words}] if pictures else words
        document = {
            "messages": [{"role": "user", "content": content}],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        sentences = Sentences()
        try:
            async with post_json(self._calls, self._llm, LLM_PATH, document, "text/event-stream") as answer:
                t = answer.sent_t
                async for t, data in answer.events():
                    event = read_event(data)
                    if event.usage is not None and event.usage.completion_tokens:
                        line.tokens = event.usage.completion_tokens
                    for choice in event.choices[:1]:
                        piece = (choice.delta and choice.delta.content) or ""
                        line.text(t, piece)
                        self._hand_over(sentences.feed(piece), t, line, spoken)
                self._hand_over(sentences.end(), t, line, spoken)
        except TurnFailedError as error:
            raise PartFailedError("llm", error) from error
        spoken.put_nowait(None)

    @staticmethod
    def _hand_over(found: list[str], t: float, line: Timeline, spoken: asyncio.Queue[str | None]) -> None:
        for sentence in found:
            line.sentence(t)
            spoken.put_nowait(sentence)

    async def _speak(self, spoken: asyncio.Queue[str | None], line: Timeline) -> None:
        try:
            while (sentence := await spoken.get()) is not None:
                await self._say(sentence, line)
        except TurnFailedError as error:
            raise PartFailedError("tts", error) from error

    async def _say(self, sentence: str, line: Timeline) -> None:
        document = {"input": sentence, "response_format": "pcm", "stream": True}
        async with post_json(self._calls, self._tts, TTS_PATH, document, "audio/*") as answer:
            if not answer.kind.startswith(_SOUND_KINDS):
                raise TurnFailedError("malformed", f"expected audio, got {answer.kind or 'no content type'}")
            speech = Speech(self._tts_rate_hz)
            if stated := _RATE.search(answer.response.headers.get("content-type", "")):
                speech.state(float(stated[1]))
            calls = self._calls
            while (piece := await answer.next(calls.clock() + calls.timeout_s)) is not None:
                line.audio(calls.clock(), speech.feed(piece))
            speech.end()
