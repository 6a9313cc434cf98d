"""Collect the moments of one turn on the client's clock. Pure: every time is passed in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from omniwatch.core.drift import Player
from omniwatch.desk.chain import Chain, Turn
from omniwatch.desk.probe import TurnFailedError

MAX_TEXT = 200_000
"""Characters of an answer's text: more than anyone speaks in the longest turn."""


@dataclass
class Timeline:
    """What has happened in a turn so far; `buffer_s` is the playout buffer of the modelled player."""

    buffer_s: float
    start_t: float
    asked_t: float | None = None
    transcript_t: float | None = None
    first_token_t: float | None = None
    last_token_t: float | None = None
    first_sentence_t: float | None = None
    first_audio_t: float | None = None
    end_t: float | None = None
    audio_s: float = 0.0
    underrun_s: float = 0.0
    tokens: int | None = None
    follows_break: bool = False
    is_broken_off: bool = False
    transcript: str | None = None
    pieces: list[str] = field(default_factory=list)
    on_first_audio: Callable[[], object] = lambda: None
    """Called once, when the first speech can play."""
    _player: Player = field(default_factory=Player)
    _text_left: int = MAX_TEXT

    def text(self, t: float, piece: str) -> None:
        """Take text received at t. Raises TurnFailedError for more than anyone speaks."""
        self._text_left -= len(piece)
        if self._text_left < 0:
            raise TurnFailedError("malformed", f"a text of more than {MAX_TEXT} characters")
        if piece:
            if self.first_token_t is None:
                self.first_token_t = t
            self.last_token_t = t
            self.pieces.append(piece)

    def sentence(self, t: float) -> None:
        """The first whole sentence is there; later ones change nothing."""
        if self.first_sentence_t is None:
            self.first_sentence_t = t

    def audio(self, t: float, seconds: float) -> None:
        """Take speech that can play from t."""
        if seconds > 0:
            if self.first_audio_t is None:
                self.first_audio_t = t
                self.on_first_audio()
            self.audio_s += seconds
            self.underrun_s += self._player.send(t, seconds * 1000.0, self.buffer_s)

    def turn(
        self,
        chain: Chain,
        concurrency: int,
        number: int,
        question: str,
        run_t: float,
        outcome: str,
        detail: str | None,
        part: str | None,
    ) -> Turn:
        """Return the turn as a result keeps it; spoken to its end but without sound, it was silent."""
        if outcome == "ok" and self.first_audio_t is None:
            outcome, detail = "silent", detail or "an answer without speech"
        text_s = None
        if self.first_token_t is not None and self.last_token_t is not None:
            text_s = round(self.last_token_t - self.first_token_t, 6)
        return Turn(
            chain=chain,
            concurrency=concurrency,
            number=number,
            question=question,
            start_s=round(self.start_t - run_t, 6),
            outcome=outcome,  # type: ignore[arg-type]  # the probe's words, which are this type's
            detail=detail,
            part=part,
            transcript_s=self._after(self.transcript_t),
            first_token_s=self._after(self.first_token_t),
            first_sentence_s=self._after(self.first_sentence_t),
            first_audio_s=self._after(self.first_audio_t),
            end_s=self._after(self.end_t),
            audio_s=round(self.audio_s, 6),
            underrun_s=round(self.underrun_s, 6),
            tokens=self.tokens,
            text_s=text_s,
            transcript=self.transcript,
            text="".join(self.pieces),
            is_broken_off=self.is_broken_off and outcome == "ok",
            follows_break=self.follows_break,
        )

    def _after(self, t: float | None) -> float | None:
        # A server may answer before it has been sent everything: then at once.
        return None if t is None or self.asked_t is None else round(max(0.0, t - self.asked_t), 6)
