"""Have the whole model answer, by transformers' own `generate`, and keep what it said. This needs memory for all of its weights."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers

from omniwatch.desk.chain.questions import Asked
from omniwatch.desk.slice import SliceError, answers
from omniwatch.desk.slice.answers import Answer
from omniwatch.desk.slice.asking import Processor
from omniwatch.desk.slice.skeleton import mend
from omniwatch.desk.slice.source import Source, config_of
from omniwatch.media import wav
from omniwatch.system import atomic_write

FRAMES_PER_S = 12.5
RATE_HZ = 24_000
"""Of the speech that the model makes."""


class Limits(NamedTuple):
    """How long an answer may be, in text tokens and in seconds of speech; `seed` draws the codec tokens."""

    tokens: int
    seconds: float
    seed: int
    speaker: str


def check_speaker(source: Source, speaker: str) -> None:
    """Raise SliceError for a voice that the model does not have, and for a model that has none."""
    talker = config_of(source).get("talker_config")
    if source.model.talker_config is None or talker is None:
        raise SliceError(f"{source.directory}: has no talker: its answers would be text alone")
    speakers = sorted(talker.get("speaker_id") or ())
    if speaker.lower() not in speakers:
        raise SliceError(f"--speaker {speaker}: the model has {', '.join(speakers)}")


def load(source: Source, device: str, dtype: Any = "auto") -> Any:
    """Load the whole model. Raises SliceError."""
    whole = transformers.Qwen3OmniMoeForConditionalGeneration
    try:
        model = whole.from_pretrained(source.directory, dtype=dtype).eval().to(device)
    except (OSError, ValueError, RuntimeError) as error:
        raise SliceError(f"{source.directory}: cannot be loaded whole: {error}") from error
    mend(model)
    return model


def make(
    model: Any,
    source: Source,
    asked: Sequence[Asked],
    folder: Path,
    limits: Limits,
    there: set[str],
    told: Callable[[str], None],
) -> None:
    """Answer the questions that are not there yet, each written down at once. Raises SliceError, OSError."""
    processor = Processor(source.directory)
    (folder / answers.FOLDER).mkdir(exist_ok=True)
    for number, one in enumerate(asked):
        if one.name in there:
            continue
        torch.manual_seed(limits.seed + number)
        with warnings.catch_warnings():
            # transformers' own call of the talker makes it warn of the repetition penalty.
            warnings.simplefilter("ignore", UserWarning)
            answer, speech = _answered(model, processor, source.config_sha256, one, limits)
        atomic_write.replace(folder / answers.FOLDER / f"{one.name}.wav", speech)
        answers.add(folder, answer)
        told(f"answers: {number + 1} of {len(asked)}")


def _answered(
    model: Any, processor: Processor, config_sha256: str, asked: Asked, limits: Limits
) -> tuple[Answer, bytes]:
    inputs = {name: held.to(model.device) for name, held in processor.spoken(asked).items()}
    for name in ("input_features", "pixel_values"):
        if name in inputs:
            inputs[name] = inputs[name].to(model.dtype)
    codes: list[Any] = []
    spoken: list[Any] = []
    speak, sound = model.talker.generate, model.code2wav.chunked_decode

    def speaking(**given: Any) -> Any:
        spoken.append(speak(**given))
        return spoken[-1]

    def sounding(given: Any, **settings: Any) -> Any:
        codes.append(given)
        return sound(given, **settings)

    model.talker.generate, model.code2wav.chunked_decode = speaking, sounding
    try:
        sequence, waves = model.generate(
            **inputs,
            speaker=limits.speaker,
            return_audio=True,
            thinker_max_new_tokens=limits.tokens,
            thinker_do_sample=False,
            talker_max_new_tokens=max(2, round(limits.seconds * FRAMES_PER_S)),
        )
    finally:
        del model.talker.generate, model.code2wav.chunked_decode
    said = sequence[0, inputs["input_ids"].shape[1] :].tolist()
    described = asked.described()
    answer = Answer(
        question=asked.name,
        sha256=described.sha256,
        config_sha256=config_sha256,
        speaker=limits.speaker,
        ids=said,
        text=processor.words(said),
        codes=codes[0][0].T.tolist(),
        last=int(spoken[0].sequences[0, -1]),
    )
    samples = (waves.flatten().clamp(-1, 1) * 32767).round().to(torch.int16).tolist()
    content = struct.pack(f"<{len(samples)}h", *samples)
    return answer, wav.header(RATE_HZ, 1, len(content)) + content
