"""Turn questions into what the model takes, as vLLM-Omni does by the same processor: the picture, then the sound."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

from omniwatch.desk.chain import questions
from omniwatch.desk.chain.questions import Asked
from omniwatch.desk.slice import SliceError
from omniwatch.desk.slice.answers import Answer
from omniwatch.media import wav

RATE_HZ = 16_000
"""Of the sound that the model hears."""


class Sample(NamedTuple):
    """A question as the model takes it, and the answer that follows it, if there is one."""

    name: str
    inputs: dict[str, Any]
    answer: Answer | None

    def sequence(self) -> Any:
        """Return the tokens of question and answer."""
        asked = self.inputs["input_ids"][0]
        said = [] if self.answer is None else self.answer.ids
        return torch.cat((asked, torch.tensor(said, dtype=asked.dtype)))

    def fed(self) -> dict[str, Any]:
        """Return the inputs with all that goes into the model: nothing follows the answer's last token."""
        tokens = self.sequence()
        if self.answer is not None:
            tokens = tokens[:-1]
        return {**self.inputs, "input_ids": tokens[None], "attention_mask": torch.ones_like(tokens)[None]}


def read(folder: Path) -> list[Asked]:
    """Read the questions. Raises SliceError, ChainError, OSError."""
    found = questions.read(folder)
    if video := next((one for one in found if (one.picture_type or "").startswith("video/")), None):
        raise SliceError(f"{folder}: {video.name} has a video: pictures are taken, videos are not")
    return found


class Processor:
    """The model's own processor."""

    def __init__(self, model: Path) -> None:
        try:
            self._processor: Any = transformers.Qwen3OmniMoeProcessor.from_pretrained(model)
        except (OSError, ValueError, ImportError, TypeError, AttributeError) as error:
            raise SliceError(f"{model}: its processor cannot be loaded: {_first_line(error)}") from error

    def samples(self, asked: Sequence[Asked], said: dict[str, Answer], *, written: bool) -> list[Sample]:
        """Return every question as it is spoken; with `written` each that has words once more in words alone. Raises SliceError."""
        found = [Sample(one.name, self.spoken(one), said.get(one.name)) for one in asked]
        if written:
            found += [
                Sample(f"{one.name} in words", self._inputs([], one.text, None, None), None)
                for one in asked
                if one.text
            ]
        return found

    def spoken(self, asked: Asked) -> dict[str, Any]:
        """Return a question with its picture and its sound. Raises SliceError."""
        kinds = [{"type": "image"}] if asked.picture is not None else []
        sound = sound_of(asked.wav)
        return self._inputs([*kinds, {"type": "audio"}], None, _picture(asked), sound)

    def words(self, tokens: Sequence[int]) -> str:
        """Return an answer's text."""
        text: str = self._processor.tokenizer.decode(tokens, skip_special_tokens=True)
        return text.strip()

    def _inputs(
        self, kinds: list[dict[str, str]], words: str | None, picture: Any, sound: Any
    ) -> dict[str, Any]:
        content = [*kinds, *([{"type": "text", "text": words}] if words else [])]
        text = self._processor.apply_chat_template(
            [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
        )
        given = {}
        if picture is not None:
            given["images"] = [picture]
        if sound is not None:
            given["audio"] = [sound.numpy()]
        return dict(self._processor(text=text, return_tensors="pt", **given))


def sound_of(content: bytes) -> Any:
    """Return the samples of a WAV file of PCM, from -1 to 1, all channels as one, at RATE_HZ."""
    head = wav.read_head(content)
    form = head.format
    assert form is not None  # `questions.read` has looked
    width = form.frame_bytes // form.channels
    size = head.size(len(content)) // form.frame_bytes * form.frame_bytes
    pieces = torch.frombuffer(bytearray(content[head.at : head.at + size]), dtype=torch.uint8)
    pieces = pieces.view(-1, form.channels, width).to(torch.int64)
    if width == 1:
        samples = (pieces[..., 0] - 128) / 128.0
    else:
        whole = sum(pieces[..., place] << (8 * place) for place in range(width))
        full = 1 << (8 * width)
        samples = torch.where(whole >= full // 2, whole - full, whole) / (full / 2.0)
    return resampled(samples.to(torch.float64).mean(dim=1), form.rate_hz).float()


def resampled(samples: Any, rate_hz: int) -> Any:
    """Return samples at RATE_HZ: the same spectrum, cut where the new rate ends."""
    if rate_hz == RATE_HZ:
        return samples
    count = max(1, round(len(samples) * RATE_HZ / rate_hz))
    spectrum = torch.fft.rfft(samples)
    held = torch.zeros(count // 2 + 1, dtype=spectrum.dtype)
    both = min(len(held), len(spectrum))
    held[:both] = spectrum[:both]
    return torch.fft.irfft(held, n=count) * (count / len(samples))


def _picture(asked: Asked) -> Any:
    if asked.picture is None:
        return None
    try:
        from PIL import Image

        return Image.open(io.BytesIO(asked.picture)).convert("RGB")
    except (OSError, ValueError, ImportError) as error:
        raise SliceError(f"{asked.name}: its picture cannot be read: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
