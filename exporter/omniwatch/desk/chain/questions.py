"""Read the questions: WAV files of a folder, and what may stand beside each under the same name."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omniwatch.desk.chain import ChainError, Question
from omniwatch.media import wav
from omniwatch.system import user_file

PICTURES = {
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
    ".mp4": "video/mp4",
}


MAX_WAV_BYTES = 64 * 2**20
"""Longest question, bytes: each turn sends it whole."""


@dataclass(frozen=True)
class Asked:
    """A question as it is sent: NAME.wav, NAME.txt (the words, to judge a transcript by), NAME.jpg, .png or .mp4."""

    name: str
    wav: bytes
    audio_s: float
    text: str | None = None
    picture: bytes | None = None
    picture_type: str | None = None

    def described(self) -> Question:
        """Return what a result keeps of it."""
        digest = hashlib.sha256(self.wav + (self.picture or b"")).hexdigest()
        return Question(
            name=self.name,
            sha256=digest,
            audio_s=round(self.audio_s, 3),
            text=self.text,
            picture=self.picture_type,
        )


def read(folder: Path) -> list[Asked]:
    """Read every WAV file of the folder, or the one named. Raises ChainError, OSError."""
    files = [folder] if folder.is_file() else sorted(folder.glob("*.wav"))
    if not files:
        raise ChainError(f"{folder}: no *.wav in it" if folder.is_dir() else f"{folder}: no such folder")
    return [_read_one(file) for file in files]


def picture_part(asked: Asked) -> list[dict[str, Any]]:
    """Return the question's picture as a part of a message, if it has one."""
    if asked.picture is None or asked.picture_type is None:
        return []
    kind = "video_url" if asked.picture_type.startswith("video/") else "image_url"
    url = f"data:{asked.picture_type};base64,{base64.b64encode(asked.picture).decode()}"
    return [{"type": kind, kind: {"url": url}}]


def sound_part(asked: Asked) -> dict[str, Any]:
    """Return the question's sound as a part of a message."""
    sound = {"data": base64.b64encode(asked.wav).decode(), "format": "wav"}
    return {"type": "input_audio", "input_audio": sound}


def _read_one(file: Path) -> Asked:
    content = user_file.read(file, MAX_WAV_BYTES)
    try:
        audio_s = _audio_s(content)
    except wav.WavError as error:
        raise ChainError(f"{file}: not a WAV file of PCM samples: {error}") from error
    if not audio_s:
        raise ChainError(f"{file}: no sound in it")
    words = file.with_suffix(".txt")
    text = user_file.read_text(words).strip() if words.exists() else None
    picture = next((p for end in PICTURES if (p := file.with_suffix(end)).exists()), None)
    return Asked(
        file.stem,
        content,
        audio_s,
        text,
        user_file.read(picture) if picture else None,
        PICTURES[picture.suffix] if picture else None,
    )


def _audio_s(content: bytes) -> float:
    """Return the seconds of a WAV file of PCM. Raises WavError."""
    head = wav.read_head(content, strict=True)
    form = head.format
    if form is None or not head.whole:
        raise wav.WavError("it ends within its header")
    if form.kind != wav.PCM:
        raise wav.WavError("its samples are floating-point numbers")
    there = len(content) - head.at
    if head.stated_bytes is not None and head.stated_bytes > there:
        raise wav.WavError(f"its header states {head.stated_bytes} bytes of samples, {there} are there")
    return head.size(len(content)) // form.frame_bytes / form.rate_hz
