"""The folder of answers: what the whole model said to each question, as text tokens and as codec tokens, a question a line.

`answers.jsonl` is written a line at a time, so that a run that was killed goes on. `answers/NAME.wav` is the speech of each.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from omniwatch.desk.chain.questions import Asked
from omniwatch.desk.slice import SliceError
from omniwatch.system import user_file

NAME = "answers.jsonl"
FOLDER = "answers"
MOST_BYTES = 2 * 2**30

Token = Annotated[int, Meta(ge=0, le=2**31)]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What the model said. `codes` has the tokens of all groups, a frame each; `last` is the token of the first group after them."""

    question: str
    sha256: str
    config_sha256: str
    speaker: str
    ids: list[Token]
    text: str
    codes: list[list[Token]] = []
    last: Token = 0


def parts_heard(parts: Iterable[str], said: Iterable[Answer]) -> list[str]:
    """Return the parts of a model that answers tell of: the thinker, and any other where one of them has codec tokens."""
    speaks = any(answer.codes for answer in said)
    return [part for part in parts if part == "thinker" or speaks]


def digest(questions: Sequence[Asked]) -> str:
    """SHA-256 of all that was asked."""
    found = hashlib.sha256()
    for asked in questions:
        found.update(f"{asked.name} {asked.described().sha256} {asked.text!r}\n".encode())
    return found.hexdigest()


def read(folder: Path, config_sha256: str, questions: Sequence[Asked]) -> tuple[dict[str, Answer], str]:
    """Read the answers that are there, by question, and the digest of all; none and "" where there are none. Raises SliceError, OSError."""
    path = folder / NAME
    if not path.exists():
        return {}, ""
    content = user_file.read(path, MOST_BYTES)
    asked = {one.name: one.described().sha256 for one in questions}
    found = {}
    lines = content.split(b"\n")
    # A run that was killed may have left half a line.
    whole = lines[:-1]
    for number, line in enumerate(whole, 1):
        where = f"{path}: line {number}"
        try:
            answer = msgspec.json.decode(line, type=Answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SliceError(f"{where}: no answer: {error}") from error
        if answer.config_sha256 != config_sha256:
            raise SliceError(f"{where}: an answer of another model")
        if asked.get(answer.question) != answer.sha256:
            raise SliceError(f"{where}: an answer to another question: {answer.question[:60]}")
        if not answer.ids or len({len(frame) for frame in answer.codes}) > 1:
            raise SliceError(f"{where}: no tokens, or frames of several lengths")
        found[answer.question] = answer
    return found, hashlib.sha256(b"\n".join(whole)).hexdigest()


def add(folder: Path, answer: Answer) -> None:
    """Put an answer behind the others, and force it onto the disk. Raises OSError."""
    path = folder / NAME
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        size = os.fstat(opened).st_size
        content = os.pread(opened, size, 0)
        whole = content.rfind(b"\n") + 1
        os.ftruncate(opened, whole)
        os.lseek(opened, whole, os.SEEK_SET)
        line = msgspec.json.encode(answer) + b"\n"
        while line:
            line = line[os.write(opened, line) :]
        os.fsync(opened)
    finally:
        os.close(opened)
