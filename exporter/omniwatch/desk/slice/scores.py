"""The folder that `slice score` fills: `scores.json`, and for each part the scores and the ranking of its experts, a layer a line.

`PART.ranking.jsonl` has the form that vllm-ascend's pruning at load reads (its pull request 12525): `{"0": [best, ..., worst]}`.
A saliency report of llm-compressor (`REAPPruningModifier`, `report_path`) is read as the scores of one part, of text alone.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from omniwatch.desk.slice import SliceError
from omniwatch.desk.slice.ranking import MODALITIES
from omniwatch.desk.slice.source import Part
from omniwatch.system import user_file

SCHEMA = 1
NAME = "scores.json"
MOST_BYTES = 256 * 2**20

Count = Annotated[int, Meta(ge=0)]


class PartOfModel(msgspec.Struct, frozen=True):
    """What a model has of experts, as `Part`."""

    experts: Count
    chosen: Count
    layers: tuple[Count, ...]

    def as_part(self) -> Part:
        """The same, as what is read from a checkpoint."""
        return Part(self.experts, self.chosen, self.layers)


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What scores.json holds. `parts` are the model's, whether they have scores or not."""

    schema: int = SCHEMA
    config_sha256: str
    data_sha256: str
    answers_sha256: str = ""
    parts: dict[str, PartOfModel]


class Layer(msgspec.Struct, frozen=True):
    """A line of PART.scores.jsonl: for each kind of input the score and the routed tokens of each expert."""

    layer: Count
    scores: dict[str, list[float]]
    counts: dict[str, list[Count]]


class Scores(msgspec.Struct, frozen=True):
    """The scores of one part. `source` and `sha256` name where they are from."""

    source: str
    sha256: str
    layers: dict[int, Layer]

    @property
    def modalities(self) -> tuple[str, ...]:
        """The kinds of input that any token stood for."""
        found = {
            kind for layer in self.layers.values() for kind, counts in layer.counts.items() if any(counts)
        }
        return tuple(kind for kind in MODALITIES if kind in found)


def read_about(folder: Path) -> About:
    """Read scores.json. Raises SliceError, OSError."""
    path = folder / NAME
    if not path.exists():
        raise SliceError(f"{folder}: no {NAME} in it: `omniwatch slice score` makes one")
    try:
        about = msgspec.json.decode(_content(path), type=About)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SliceError(f"{path}: not {NAME}: {error}") from error
    if about.schema != SCHEMA:
        raise SliceError(f"{path}: schema {about.schema}; this omniwatch reads {SCHEMA}")
    return about


def encoded(about: About) -> bytes:
    """The bytes of scores.json."""
    return msgspec.json.format(msgspec.json.encode(about), indent=1) + b"\n"


def scores_file(folder: Path, part: str) -> Path:
    """Where a part's scores are."""
    return folder / f"{part}.scores.jsonl"


def ranking_file(folder: Path, part: str) -> Path:
    """Where a part's ranking is."""
    return folder / f"{part}.ranking.jsonl"


def read(folder: Path, name: str, part: Part) -> Scores:
    """Read the scores of all layers of a part. Raises SliceError, OSError."""
    path = scores_file(folder, name)
    if not path.exists():
        raise SliceError(f"{folder}: no scores of the {name}: none are made up")
    content = _content(path)
    layers = {}
    for number, line in enumerate(content.splitlines(), 1):
        try:
            layer = msgspec.json.decode(line, type=Layer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SliceError(f"{path}: line {number}: {error}") from error
        _check(f"{path}: line {number}", layer, part)
        if layer.layer in layers:
            raise SliceError(f"{path}: line {number}: layer {layer.layer} again")
        layers[layer.layer] = layer
    if missing := sorted(set(part.layers) - set(layers)):
        raise SliceError(
            f"{path}: layer {missing[0]} is missing: `omniwatch slice score` goes on where it was"
        )
    return Scores("omniwatch slice score", hashlib.sha256(content).hexdigest(), layers)


def read_report(path: Path, part: Part) -> Scores:
    """Read a saliency report of llm-compressor as the scores of one part. Raises SliceError, OSError."""
    content = _content(path)
    try:
        report = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SliceError(f"{path}: not JSON: {error}") from error
    saliency = report.get("saliency") if isinstance(report, dict) else None
    if not isinstance(saliency, list):
        raise SliceError(f'{path}: no "saliency": not a report of llm-compressor\'s REAPPruningModifier')
    if len(saliency) != len(part.layers):
        raise SliceError(f"{path}: {len(saliency)} layers, the model has {len(part.layers)} with experts")
    counts = report.get("count", [[1] * part.experts] * len(saliency))
    layers = {}
    for place, layer in enumerate(part.layers):
        where = f"{path}: layer {layer}"
        try:
            # llm-compressor counts in float64: 3.0 is 3.
            found = msgspec.convert(
                {"layer": layer, "scores": {"text": saliency[place]}, "counts": {"text": counts[place]}},
                Layer,
                strict=False,
            )
        except (msgspec.ValidationError, IndexError, TypeError, KeyError) as error:
            raise SliceError(f"{where}: expected a number for each expert: {error}") from error
        _check(where, found, part)
        layers[layer] = found
    return Scores("llm-compressor", hashlib.sha256(content).hexdigest(), layers)


def ranking_lines(orders: dict[int, list[int]]) -> bytes:
    """A ranking, a layer a line."""
    return "".join(json.dumps({str(layer): order}) + "\n" for layer, order in sorted(orders.items())).encode()


def _check(where: str, layer: Layer, part: Part) -> None:
    if layer.layer not in part.layers:
        raise SliceError(f"{where}: layer {layer.layer} has no experts in this model")
    found: list[tuple[str, Any]] = [*layer.scores.items(), *layer.counts.items()]
    if not layer.scores or set(layer.scores) != set(layer.counts) or set(layer.scores) - set(MODALITIES):
        raise SliceError(
            f"{where}: expected scores and counts of {', '.join(MODALITIES)}, or of some of them"
        )
    for kind, values in found:
        if len(values) != part.experts:
            raise SliceError(f"{where}: {kind}: {len(values)} values, a layer has {part.experts} experts")
        if not all(math.isfinite(value) and value >= 0 for value in values):
            raise SliceError(f"{where}: {kind}: a value that is negative or not a number")


def _content(path: Path) -> bytes:
    try:
        return user_file.read(path, MOST_BYTES)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise SliceError(f"{path}: more than {MOST_BYTES // 2**20} MiB") from error
        raise
