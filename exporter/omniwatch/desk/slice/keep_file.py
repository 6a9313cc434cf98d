"""keep.json: which experts of each layer stay."""

from __future__ import annotations

import errno
import json
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from omniwatch.desk.slice import PARTS, SliceError
from omniwatch.desk.slice.source import Part, Source
from omniwatch.system import user_file

SCHEMA = 1
NAME = "keep.json"
"""Its name in OUT, where it says what was kept."""
MOST_BYTES = 16 * 2**20

Number = Annotated[int, Meta(ge=0, le=2**31)]


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """By which scores the experts were chosen."""

    source: str
    sha256: str
    modalities: tuple[str, ...] = ()


class KeptPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`experts`: how many a layer has before the cut. `layers`: the numbers that stay, by layer."""

    experts: Number
    layers: dict[str, tuple[Number, ...]]
    scores: Origin | None = None


class Keep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What keep.json holds. A part that is absent keeps all its experts."""

    schema: int = SCHEMA
    config_sha256: str
    parts: dict[str, KeptPart]

    def numbers(self, part: str, layer: int) -> tuple[int, ...] | None:
        """The experts that stay, in ascending order; None: all."""
        kept = self.parts.get(part)
        return None if kept is None else tuple(sorted(kept.layers[str(layer)]))

    def count(self, part: str, before: int) -> int:
        """How many experts of a layer stay."""
        kept = self.parts.get(part)
        return before if kept is None else len(next(iter(kept.layers.values())))


def read(path: Path) -> tuple[Keep, bytes]:
    """Read a keep.json, and its bytes. Raises SliceError, OSError."""
    try:
        content = user_file.read(path, MOST_BYTES)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise SliceError(f"{path}: more than {MOST_BYTES // 2**20} MiB, so it is no keep.json") from error
        raise
    try:
        keep = msgspec.json.decode(content, type=Keep)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SliceError(f"{path}: no keep.json: {error}") from error
    if keep.schema != SCHEMA:
        raise SliceError(f"{path}: schema {keep.schema}; this omniwatch reads {SCHEMA}")
    return keep, content


def encoded(keep: Keep) -> bytes:
    """A keep.json's bytes: a layer a line."""
    parts = []
    for name, kept in keep.parts.items():
        layers = ",\n".join(
            f"   {json.dumps(layer)}: {json.dumps(numbers)}" for layer, numbers in kept.layers.items()
        )
        scores = json.dumps(msgspec.to_builtins(kept.scores))
        parts.append(
            f'  {json.dumps(name)}: {{"experts": {kept.experts}, "scores": {scores}, "layers": {{\n{layers}\n  }}}}'
        )
    joined = ",\n".join(parts)
    head = f'"schema": {keep.schema}, "config_sha256": {json.dumps(keep.config_sha256)}'
    return f'{{{head}, "parts": {{\n{joined}\n}}}}\n'.encode()


def check(keep: Keep, path: Path, source: Source) -> None:
    """Raise SliceError where it does not say, for this model, which experts of every layer stay."""
    if keep.config_sha256 != source.config_sha256:
        raise SliceError(
            f"{path}: of another model: it names a config.json of digest {keep.config_sha256[:12]}, "
            f"{source.directory} has {source.config_sha256[:12]}"
        )
    strange = [name for name in keep.parts if name not in PARTS]
    if strange or not keep.parts:
        raise SliceError(
            f"{path}: parts: expected thinker, talker or both, got {', '.join(strange) or 'none'}"
        )
    for name, kept in keep.parts.items():
        part = source.parts.get(name)
        if part is None:
            raise SliceError(f"{path}: {name}: {source.directory} has none")
        _check_part(f"{path}: {name}", kept, part)


def check_count(where: str, count: int, part: Part) -> None:
    """Raise SliceError for fewer experts than a token takes, or more than there are."""
    if count < part.chosen:
        raise SliceError(
            f"{where}: {count} experts, and a token takes {part.chosen}: at least {part.chosen} must stay"
        )
    if count > part.experts:
        raise SliceError(f"{where}: {count} experts, and a layer has {part.experts}")


def _check_part(where: str, kept: KeptPart, part: Part) -> None:
    if kept.experts != part.experts:
        raise SliceError(f"{where}: of {kept.experts} experts a layer, the model has {part.experts}")
    wanted = {str(layer) for layer in part.layers}
    if wrong := sorted(wanted ^ set(kept.layers)):
        says = "is missing" if wrong[0] in wanted else "has no experts in this model"
        raise SliceError(f"{where}: layer {wrong[0][:20]} {says}")
    counts: dict[int, str] = {}
    for layer in map(str, part.layers):
        numbers = kept.layers[layer]
        if twice := sorted(number for number in set(numbers) if numbers.count(number) > 1):
            raise SliceError(f"{where}, layer {layer}: expert {twice[0]} twice")
        if beyond := [number for number in numbers if number >= part.experts]:
            raise SliceError(
                f"{where}, layer {layer}: expert {beyond[0]}, and the numbers go from 0 to {part.experts - 1}"
            )
        counts.setdefault(len(numbers), layer)
    if len(counts) > 1:
        (one, first), (other, second) = list(counts.items())[:2]
        raise SliceError(
            f"{where}: {one} experts in layer {first}, {other} in layer {second}: a model has one number for all layers"
        )
    check_count(where, next(iter(counts)), part)
