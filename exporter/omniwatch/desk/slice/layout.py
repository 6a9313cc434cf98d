"""Lay out the files of a cut checkpoint: which bytes of the old files make up each new one. Pure."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from omniwatch.desk.plan import checkpoint
from omniwatch.desk.plan.checkpoint import Stored
from omniwatch.desk.slice import names
from omniwatch.desk.slice.keep_file import Keep
from omniwatch.desk.slice.source import Source

_LENGTH = struct.Struct("<Q")
_ALIGNED = 8
"""Bytes: a header's length is a multiple of it, so that the tensors begin at one."""


class Run(NamedTuple):
    """Bytes of an old file."""

    file: Path
    begin: int
    size: int


class Cut(NamedTuple):
    """A tensor of the new checkpoint."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    runs: list[Run]


class OutFile(NamedTuple):
    """A new file of weights: its header, and what stands behind it."""

    name: str
    header: bytes
    tensors: list[Cut]

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self.header) + sum(tensor.size for tensor in self.tensors)

    def runs(self) -> Iterator[Run]:
        """What stands behind the header, runs that touch each other as one."""
        before: Run | None = None
        for run in (run for tensor in self.tensors for run in tensor.runs):
            if before is not None and before.file == run.file and before.begin + before.size == run.begin:
                before = Run(before.file, before.begin, before.size + run.size)
                continue
            if before is not None:
                yield before
            before = run
        if before is not None:
            yield before


def cuts(source: Source, keep: Keep) -> Iterator[Cut]:
    """List the new tensors in the order of the old files."""
    tensors = sorted(source.weights.tensors, key=lambda tensor: (tensor.file.name, tensor.begin))
    for tensor in tensors:
        kind = names.read(tensor.name)
        kept = None if kind is None else keep.numbers(kind.part, kind.layer)
        whole = [Run(tensor.file, tensor.begin, tensor.size)]
        if kind is None or kept is None:
            yield Cut(tensor.name, tensor.dtype, tensor.shape, tensor.size, whole)
        elif isinstance(kind, names.OfExpert):
            if kind.number in kept:
                name = kind.renumbered(kept.index(kind.number))
                yield Cut(name, tensor.dtype, tensor.shape, tensor.size, whole)
        else:
            yield _rows(tensor, kept)


def files(source: Source, keep: Keep) -> list[OutFile]:
    """Distribute the new tensors over files as large as the largest old one."""
    sizes = dict.fromkeys(source.weights.files, 0)
    for tensor in source.weights.tensors:
        sizes[tensor.file] += tensor.size
    most = max(sizes.values())
    groups: list[list[Cut]] = [[]]
    filled = 0
    for cut in cuts(source, keep):
        if groups[-1] and filled + cut.size > most:
            groups.append([])
            filled = 0
        groups[-1].append(cut)
        filled += cut.size
    if len(groups) == 1:
        return [_file(checkpoint.SINGLE, groups[0])]
    count = len(groups)
    return [
        _file(f"model-{number:05}-of-{count:05}.safetensors", group) for number, group in enumerate(groups, 1)
    ]


def index(found: list[OutFile]) -> bytes | None:
    """The index that says which file holds a tensor; None for one file."""
    if len(found) == 1:
        return None
    places = {tensor.name: file.name for file in found for tensor in file.tensors}
    total = sum(tensor.size for file in found for tensor in file.tensors)
    document = {"metadata": {"total_size": total}, "weight_map": dict(sorted(places.items()))}
    return (json.dumps(document, indent=2) + "\n").encode()


def _rows(tensor: Stored, kept: tuple[int, ...]) -> Cut:
    """Keep some of the first dimension."""
    row = tensor.size // tensor.shape[0]
    runs = [Run(tensor.file, tensor.begin + number * row, row) for number in kept]
    return Cut(tensor.name, tensor.dtype, (len(kept), *tensor.shape[1:]), row * len(kept), runs)


def _file(name: str, tensors: list[Cut]) -> OutFile:
    # The widest type first: then each tensor begins at a multiple of its own element's size, as readers want it.
    ordered = sorted(tensors, key=lambda tensor: -checkpoint.BITS[tensor.dtype])
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for tensor in ordered:
        end = at + tensor.size
        entries[tensor.name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [at, end]}
        at = end
    content = json.dumps(entries, separators=(",", ":")).encode()
    content += b" " * (-len(content) % _ALIGNED)
    return OutFile(name, _LENGTH.pack(len(content)) + content, ordered)
