"""Read which tensors a checkpoint holds from its safetensors headers, without reading any tensor.

The format (huggingface/safetensors): 8 bytes, little endian: the header's length; the header, JSON; then the tensors' bytes.
Nothing of a file is believed that its size contradicts.
"""

from __future__ import annotations

import errno
import math
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from omniwatch.desk.plan.model import CONFIG, PlanError
from omniwatch.system import user_file

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
HEADER_BYTES = 100_000_000
"""Longest header that is read: safetensors' own limit."""
INDEX_BYTES = 100_000_000
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64,
    "C64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
_LENGTH = struct.Struct("<Q")
_SHARD = re.compile(r"[\w.-]+\.safetensors")


class Stored(NamedTuple):
    """A tensor that a checkpoint holds."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    """Its bytes."""
    file: Path
    begin: int
    """Where in `file` its bytes begin."""


class Weights(NamedTuple):
    """All tensors of a checkpoint."""

    tensors: list[Stored]
    files: list[Path]
    notes: tuple[str, ...] = ()
    """What its index says that is not so, and does not matter to a plan."""

    @property
    def size(self) -> int:
        """The sum of the tensors' bytes."""
        return sum(tensor.size for tensor in self.tensors)


def read(directory: Path) -> Weights | None:
    """Read the headers of a checkpoint's files; None where the directory holds no weights. Raises PlanError, OSError."""
    index = directory / INDEX
    if index.exists():
        return _sharded(directory, index)
    if (directory / SINGLE).exists():
        return Weights(list(header(directory / SINGLE)), [directory / SINGLE])
    others = sorted(directory.glob("*.safetensors"))
    if others:
        raise PlanError(
            f"{directory}: {others[0].name}, but neither {SINGLE} nor {INDEX}: a download cut short?"
        )
    if (other := next(iter(sorted(directory.glob("*.bin"))), None)) and not (directory / CONFIG).exists():
        raise PlanError(f"{other}: only safetensors are read")
    return None


def header(path: Path) -> Iterator[Stored]:
    """Read one file's header. Raises PlanError, OSError."""
    with os.fdopen(user_file.open_regular(path), "rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        first = file.read(_LENGTH.size)
        if len(first) < _LENGTH.size:
            raise PlanError(f"{path}: {size} bytes, too short for a safetensors file")
        (length,) = _LENGTH.unpack(first)
        if length > HEADER_BYTES:
            raise PlanError(
                f"{path}: its header says it has {_words(length)}: no safetensors file, or damaged"
            )
        if length > size - _LENGTH.size:
            raise PlanError(
                f"{path}: its header has {length} bytes, the file {size}: not whole, or no safetensors file"
            )
        content = file.read(length)
    data = size - _LENGTH.size - length
    try:
        found = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise PlanError(f"{path}: its header is not JSON: not a safetensors file ({error})") from error
    if not isinstance(found, dict):
        raise PlanError(f"{path}: its header is no JSON object: not a safetensors file")
    end = 0
    for name, entry in found.items():
        if name == "__metadata__":
            continue
        tensor = _entry(path, name, entry, size, data)
        end = max(end, tensor.begin + tensor.size - (size - data))
        yield tensor
    if end != data:
        raise PlanError(f"{path}: its tensors end at byte {end} of {data}: not whole, or damaged")


def _words(length: int) -> str:
    return f"{length / 1e12:.1f} TB" if length >= 1e12 else f"{length / 1e9:.1f} GB"


def _entry(path: Path, name: str, entry: Any, size: int, data: int) -> Stored:
    """Read one entry of a header, of a file of `size` bytes, the last `data` of which are the tensors'."""
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        numbers = [*shape, begin, end]
    except (TypeError, KeyError, ValueError) as error:
        raise PlanError(f"{path}: {name[:80]}: no dtype, shape and data_offsets") from error
    if not all(type(number) is int and number >= 0 for number in numbers) or not isinstance(dtype, str):
        raise PlanError(f"{path}: {name[:80]}: dtype, shape or data_offsets of the wrong type")
    if not begin <= end <= data:
        raise PlanError(f"{path}: {name[:80]}: bytes {begin} to {end} of {data}: not whole, or damaged")
    bits = BITS.get(dtype)
    if bits is None:
        raise PlanError(f"{path}: {name[:80]}: unknown type {dtype[:20]}")
    wanted = -(-math.prod(shape) * bits // 8)
    if end - begin != wanted:
        raise PlanError(
            f"{path}: {name[:80]}: {dtype} {list(shape)} takes {wanted} bytes, the header says {end - begin}"
        )
    return Stored(name, dtype, tuple(shape), end - begin, path, size - data + begin)


def _sharded(directory: Path, index: Path) -> Weights:
    try:
        found = msgspec.json.decode(user_file.read(index, INDEX_BYTES))
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise PlanError(f"{index}: more than {INDEX_BYTES // 10**6} MB") from error
        raise
    except (msgspec.DecodeError, RecursionError) as error:
        raise PlanError(f"{index}: not JSON: {error}") from error
    places = found.get("weight_map") if isinstance(found, dict) else None
    if (
        not isinstance(places, dict)
        or not places
        or not all(isinstance(name, str) for name in places.values())
    ):
        raise PlanError(f"{index}: no weight_map of tensors to files")
    stored: list[Stored] = []
    files: list[Path] = []
    notes: list[str] = []
    for name in sorted(set(places.values())):
        if not _SHARD.fullmatch(name):
            raise PlanError(f'{index}: weight_map: "{name[:60]}" is no name of a .safetensors file beside it')
        path = directory / name
        if not path.exists():
            raise PlanError(f"{index}: names {name}, which is not there: a download cut short?")
        held = list(header(path))
        named = {tensor for tensor, place in places.items() if place == name}
        absent = sorted(named - {tensor.name for tensor in held})
        if absent:
            raise PlanError(
                f"{index}: says that {name} holds {absent[0]}, which it does not ({len(absent)} of {len(named)})"
            )
        extra = sorted({tensor.name for tensor in held} - named)
        if extra:
            notes.append(f"{index}: does not name {extra[0]}, which {name} holds ({len(extra)} in all)")
        stored += held
        files.append(path)
    total = found.get("metadata", {}).get("total_size") if isinstance(found.get("metadata"), dict) else None
    size = sum(tensor.size for tensor in stored)
    if isinstance(total, int | float) and total != size:
        notes.append(f"{index}: total_size: says {total:.0f} bytes, the files hold {size}")
    return Weights(stored, files, tuple(notes))
