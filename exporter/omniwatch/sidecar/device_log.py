"""Keep samples of the device as lines of a file, in two files of a bounded size, and read them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from omniwatch.core.samples import Sample
from omniwatch.system import user_file
from omniwatch.system.errors import UserError

NAME = "device.jsonl"
MAX_BYTES = 2**20
"""Size past which the file becomes NAME.1."""

_decode = msgspec.json.Decoder(Sample).decode


def append(path: Path, sample: Sample) -> None:
    """Append a line, and rotate a file that is full. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o640)
    try:
        os.write(fd, msgspec.json.encode(sample) + b"\n")
        full = os.fstat(fd).st_size >= MAX_BYTES
    finally:
        os.close(fd)
    if full:
        path.replace(_older(path))


def read(path: Path) -> Iterator[Sample]:
    """Yield the samples of a file, and before them those of the older file beside it. A line that is none is skipped.

    Raises UserError where the file itself cannot be read.
    """
    for each in (_older(path), path):
        if each == path or each.exists():
            try:
                content = user_file.read(each, 2 * MAX_BYTES)
            except OSError as error:
                raise UserError(f"{each}: {error.strerror or error}") from error
            for line in content.splitlines():
                try:
                    yield _decode(line)
                except msgspec.DecodeError:
                    continue


def _older(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")
