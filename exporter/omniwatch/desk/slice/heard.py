"""Have speech recognition write down what both models said, and count the words that differ from their own texts."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from omniwatch.desk.chain.questions import Asked, picture_part, sound_part
from omniwatch.desk.probe import target as targets
from omniwatch.desk.probe.chat import ChatClient
from omniwatch.desk.probe.target import Target
from omniwatch.desk.probe.transcript import Recording, Transcriber, Words
from omniwatch.desk.probe.turn import Asking
from omniwatch.desk.slice import SliceError, answers, cost
from omniwatch.desk.slice.answers import Answer
from omniwatch.system import user_file


class Servers(NamedTuple):
    """A server of the cut model, and a speech recognition."""

    native: Target
    asr: Target
    timeout_s: float

    @classmethod
    def parsed(cls, native: str, asr: str, timeout_s: float) -> Servers:
        """Read the addresses. Raises SliceError."""
        found = []
        for option, url in (("--native", native), ("--asr", asr)):
            try:
                target = targets.parse(url.rstrip("/").removesuffix("/v1"))
                if target.kind != "chat":
                    raise ValueError(f'expected http://HOST:PORT, got "{url}"')
            except ValueError as error:
                raise SliceError(f"{option}: {error}") from error
            found.append(target)
        return cls(found[0], found[1], timeout_s)

    def ask(
        self, asked: Sequence[Asked], said: Mapping[str, Answer], folder: Path
    ) -> tuple[cost.Words, cost.Words]:
        """Return the word error rates of the original's kept answers and of the cut model's own. Raises SliceError, OSError."""
        transcriber = Transcriber(self.asr, self.timeout_s)
        whole = [_kept(folder, said[one.name], transcriber) for one in asked]
        found = _rated(whole, f"--asr {self.asr.base}")
        cut = [self._answered(one, transcriber) for one in asked]
        return found, _rated(cut, f"--native {self.native.base}")

    def _answered(self, asked: Asked, transcriber: Transcriber) -> Words:
        parts = [*picture_part(asked), sound_part(asked)]
        asking = Asking("", parts=parts, timeout_s=self.timeout_s, transcriber=transcriber)
        client = ChatClient(self.native, asking)
        try:
            turn = client.turn(1)
        finally:
            client.close()
        if turn.outcome == "unreachable":
            raise SliceError(f"--native {self.native.base}: cannot reach it: {turn.detail}")
        return turn.words or Words("", error=f"{turn.outcome}: {turn.detail or asked.name}")


def _kept(folder: Path, answer: Answer, transcriber: Transcriber) -> Words:
    recording = Recording()
    recording.text(answer.text)
    speech = user_file.read(folder / answers.FOLDER / f"{answer.question}.wav")
    recording.sound(base64.b64encode(speech).decode())
    return transcriber.words(recording)


def _rated(found: Sequence[Words], where: str) -> cost.Words:
    good = [one for one in found if one.rate is not None]
    rated = cost.words([one.errors for one in good], [one.count for one in good], len(found) - len(good))
    if rated is None:
        why = next((one.error for one in found if one.error), "no answer has words")
        raise SliceError(f"{where}: no answer could be transcribed: {why}")
    return rated
