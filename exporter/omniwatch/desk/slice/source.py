"""Read the checkpoint that is to be cut: its config, its headers, and which of its layers have experts."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from omniwatch.desk.plan import checkpoint, model
from omniwatch.desk.plan.checkpoint import Stored, Weights
from omniwatch.desk.plan.model import CONFIG, Model
from omniwatch.desk.slice import PARTS, SliceError, names
from omniwatch.system import user_file

PIECE_BYTES = 8 * 2**20


class Part(NamedTuple):
    """The thinker or the talker: experts a layer, how many of them a token takes, and the layers that have any."""

    experts: int
    chosen: int
    layers: tuple[int, ...]


class Source(NamedTuple):
    """A checkpoint whose layers are whole: each layer with experts has all of them, and a router with a row for each."""

    directory: Path
    config: bytes
    model: Model
    weights: Weights
    parts: dict[str, Part]

    @property
    def config_sha256(self) -> str:
        """Digest by which scores and keep.json name the model that they are for."""
        return hashlib.sha256(self.config).hexdigest()


def read(directory: Path) -> Source:
    """Read a checkpoint's directory. Raises SliceError, PlanError, OSError."""
    if not directory.is_dir():
        raise SliceError(f"{directory}: not a directory")
    config = user_file.read(directory / CONFIG, model.CONFIG_BYTES)
    parsed = model.parse(config, str(directory / CONFIG))
    weights = checkpoint.read(directory)
    if weights is None:
        raise SliceError(f"{directory}: no weights in it: neither {checkpoint.SINGLE} nor {checkpoint.INDEX}")
    return Source(directory, config, parsed, weights, _parts(directory, parsed, weights.tensors))


def digest(source: Source) -> str:
    """SHA-256 of config, index and headers: it names a checkpoint without reading its weights. Raises OSError."""
    found = hashlib.sha256(source.config)
    index = source.directory / checkpoint.INDEX
    if index.exists():
        found.update(user_file.read(index, checkpoint.INDEX_BYTES))
    ends = {tensor.file: tensor.begin for tensor in reversed(source.weights.tensors)}
    for tensor in source.weights.tensors:
        ends[tensor.file] = min(ends[tensor.file], tensor.begin)
    for file in source.weights.files:
        left = ends.get(file, 0)
        with os.fdopen(user_file.open_regular(file), "rb") as opened:
            while left and (piece := opened.read(min(left, PIECE_BYTES))):
                found.update(piece)
                left -= len(piece)
    return found.hexdigest()


def config_of(source: Source) -> dict[str, Any]:
    """The config as it stands in the file."""
    found: dict[str, Any] = json.loads(source.config)
    return found


def text_config(config: dict[str, Any], part: str) -> dict[str, Any]:
    """The decoder's part of a config, wherever this kind of model has it."""
    whole = config if config.get("model_type") == "qwen3_omni_moe_thinker" else config[f"{part}_config"]
    found: dict[str, Any] = whole["text_config"]
    return found


def _parts(directory: Path, parsed: Model, tensors: list[Stored]) -> dict[str, Part]:
    layers: dict[tuple[str, int], _Layer] = {}
    seen: set[str] = set()
    for tensor in tensors:
        if tensor.name in seen:
            raise SliceError(f"{directory}: {tensor.name[:100]}: two files hold it")
        seen.add(tensor.name)
        kind = names.read(tensor.name)
        if kind is not None:
            layers.setdefault((kind.part, kind.layer), _Layer()).add(tensor, kind)
    configs = {"thinker": parsed.thinker_config.text_config}
    if parsed.talker_config is not None:
        configs["talker"] = parsed.talker_config.text_config
    found = {}
    for part in PARTS:
        numbers = tuple(sorted(layer for name, layer in layers if name == part))
        if not numbers:
            continue
        if part not in configs:
            raise SliceError(f"{directory}: the files hold a {part}, {CONFIG} has none")
        text = configs[part]
        for layer in numbers:
            layers[part, layer].check(f"{directory}: {part}, layer {layer}", text.num_experts)
        found[part] = Part(text.num_experts, text.num_experts_per_tok, numbers)
    if not found:
        raise SliceError(f"{directory}: no layer has experts")
    return found


class _Layer:
    """What the files hold of one layer's experts."""

    def __init__(self) -> None:
        self._router: Stored | None = None
        self._fused: list[Stored] = []
        self._own: dict[int, set[str]] = {}

    def add(self, tensor: Stored, kind: names.OfExpert | names.OfAll) -> None:
        if isinstance(kind, names.OfExpert):
            self._own.setdefault(kind.number, set()).add(kind.rest)
        elif kind.is_router:
            self._router = tensor
        else:
            self._fused.append(tensor)

    def check(self, where: str, experts: int) -> None:
        """Raise SliceError where an expert, a row or a tensor is missing, or is too many."""
        if self._router is None:
            raise SliceError(f"{where}: no router (mlp.gate.weight)")
        if not self._own and not self._fused:
            raise SliceError(f"{where}: a router, but no experts")
        for tensor in [self._router, *self._fused]:
            if not tensor.shape or tensor.shape[0] != experts or tensor.size % experts:
                raise SliceError(
                    f"{where}: {tensor.name[:100]}: shape {list(tensor.shape)}, {CONFIG} says {experts} experts"
                )
        if not self._own:
            return
        strange = sorted(set(self._own) ^ set(range(experts)))
        if strange:
            says = "is there" if strange[0] in self._own else "is missing"
            raise SliceError(f"{where}: expert {strange[0]} {says}, {CONFIG} says {experts} experts")
        every = set.union(*self._own.values())
        for number, own in sorted(self._own.items()):
            if own != every:
                raise SliceError(f"{where}: expert {number} lacks {min(every - own)}, which others have")
