"""Checkpoints with experts in every layout, filled at random, and what a cut of them has to be."""

from __future__ import annotations

import copy
import hashlib
import json
import random
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from helpers.checkpoints import CONFIG
from omniwatch.desk.plan.model import parse, tensors

LAYOUTS = (
    "single",
    "sharded",
    "fused",
    "gptq",
    "fp8",
    "tied",
    "dense",
    "mixed types",
    "silent",
    "thinker alone",
)
ASIDE = {"tokenizer.json": "{}", "generation_config.json": "{}", "chat_template.jinja": "{{ messages }}", "README.md": "# of the original"}  # fmt: skip


class Held(NamedTuple):
    """A tensor, read by nothing of ours."""

    dtype: str
    shape: tuple[int, ...]
    content: bytes


Tensors = dict[str, Held]
EXPERTS = {"thinker": 4, "talker": 5}
"""Experts a layer of the models made here."""
_BYTES = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "I32": 4, "F16": 2}


def config(layout: str) -> dict[str, Any]:
    """The config of a model of four experts in the thinker and five in the talker, two taken for a token."""
    found = copy.deepcopy(CONFIG)
    thinker, talker = (found[f"{part}_config"]["text_config"] for part in ("thinker", "talker"))
    talker["num_local_experts"] = 5
    del talker["num_experts"]
    if layout == "tied":
        thinker["tie_word_embeddings"] = True
    if layout == "dense":
        thinker |= {"num_hidden_layers": 4, "mlp_only_layers": [1], "decoder_sparse_step": 1}
    if layout == "gptq":
        found["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": 8}
    if layout == "silent":
        found["enable_audio_output"] = False
    if layout == "thinker alone":
        found = {"model_type": "qwen3_omni_moe_thinker", **found["thinker_config"]}
    return found


def contents(layout: str, seed: int) -> Tensors:
    """The tensors of such a checkpoint."""
    draw = random.Random(seed)
    found: Tensors = {}
    model = parse(json.dumps(config(layout)).encode(), "config.json")
    for name, shape in tensors(model):
        expert = ".experts." in name
        if layout == "gptq" and expert:
            stem = name.removesuffix(".weight")
            for suffix, dtype, packed in (
                ("qweight", "I32", (2, shape[0])),
                ("qzeros", "I32", (1, 1)),
                ("scales", "F16", (1, shape[0])),
                ("g_idx", "I32", (shape[1],)),
            ):
                found[f"{stem}.{suffix}"] = _random(draw, dtype, packed)
        elif layout == "fp8" and expert:
            found[name] = _random(draw, "F8_E4M3", shape)
            found[f"{name}_scale_inv"] = _random(draw, "F32", (1, 1))
        else:
            dtype = draw.choice(["BF16", "F32"]) if layout == "mixed types" else "BF16"
            found[name] = _random(draw, dtype, shape)
    return _fused(found) if layout == "fused" else found


def made(directory: Path, layout: str, seed: int = 1) -> Path:
    """Write such a checkpoint with the files beside it; return its directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config(layout)))
    for name, text in ASIDE.items():
        (directory / name).write_text(text)
    whole = contents(layout, seed)
    if layout in ("single", "tied", "thinker alone"):
        write(directory / "model.safetensors", whole)
        return directory
    shards, places = 3, {}
    every = list(whole)
    random.Random(seed).shuffle(every)
    for shard in range(shards):
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        write(directory / name, {tensor: whole[tensor] for tensor in every[shard::shards]})
        places |= dict.fromkeys(every[shard::shards], name)
    document = {
        "metadata": {"total_size": sum(len(held.content) for held in whole.values())},
        "weight_map": places,
    }
    (directory / "model.safetensors.index.json").write_text(json.dumps(document))
    return directory


def write(path: Path, found: Tensors) -> None:
    """Write a safetensors file."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, held in found.items():
        entries[name] = {
            "dtype": held.dtype,
            "shape": held.shape,
            "data_offsets": [at, at + len(held.content)],
        }
        at += len(held.content)
    header = json.dumps(entries).encode()
    path.write_bytes(
        struct.pack("<Q", len(header)) + header + b"".join(held.content for held in found.values())
    )


def read(directory: Path) -> Tensors:
    """Read a checkpoint whole, and hold it to what safetensors asks of a file and transformers of an index."""
    found: Tensors = {}
    places: dict[str, str] = {}
    for path in sorted(directory.glob("*.safetensors")):
        content = path.read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        assert header.pop("__metadata__") == {"format": "pt"}
        assert length % 8 == 0
        at = 0
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            assert begin == at, "no holes"
            assert begin % _BYTES[entry["dtype"]] == 0, "each element at a multiple of its size"
            at = end
            assert name not in found
            found[name] = Held(entry["dtype"], tuple(entry["shape"]), content[8 + length :][begin:end])
            places[name] = path.name
        assert 8 + length + at == len(content)
    index = directory / "model.safetensors.index.json"
    if len(set(places.values())) > 1 or index.exists():
        document = json.loads(index.read_text())
        assert document["weight_map"] == places
        assert document["metadata"]["total_size"] == sum(len(held.content) for held in found.values())
    return found


def cut(found: Tensors, kept: Mapping[str, Mapping[int, tuple[int, ...]]]) -> Tensors:
    """What is left of the tensors: the plainest way to say what a cut is."""
    left: Tensors = {}
    for name, held in found.items():
        place = re.match(r"(thinker|talker)\.model\.layers\.(\d+)\.mlp\.(experts\.|gate\.weight)", name)
        numbers = kept.get(place[1], {}).get(int(place[2])) if place else None
        if place is None or numbers is None:
            left[name] = held
            continue
        one = re.fullmatch(r"(.*\.experts\.)(\d+)(\..*)", name)
        if one is None:
            row = len(held.content) // held.shape[0]
            rows = b"".join(held.content[number * row : (number + 1) * row] for number in numbers)
            left[name] = Held(held.dtype, (len(numbers), *held.shape[1:]), rows)
        elif int(one[2]) in numbers:
            left[f"{one[1]}{sorted(numbers).index(int(one[2]))}{one[3]}"] = held
    return left


def draw_kept(layout: str, seed: int) -> dict[str, dict[int, tuple[int, ...]]]:
    """Draw which experts stay, other ones in each layer."""
    draw = random.Random(seed)
    counts = {"thinker": draw.randint(2, 4), "talker": draw.randint(2, 5)}
    layers = {"thinker": [0, 2, 3] if layout == "dense" else [0, 1], "talker": [0, 1]}
    parts = (
        ["thinker"]
        if layout in ("silent", "thinker alone")
        else draw.choice([["thinker", "talker"], ["talker"]])
    )
    return {
        part: {
            layer: tuple(sorted(draw.sample(range(EXPERTS[part]), counts[part]))) for layer in layers[part]
        }
        for part in parts
    }


def keep_file(
    path: Path,
    model: Path,
    kept: Mapping[str, Mapping[int, tuple[int, ...]]],
    experts: Mapping[str, int] = EXPERTS,
) -> Path:
    """Write a keep.json for a model."""
    parts = {
        part: {"experts": experts[part], "layers": {str(layer): numbers for layer, numbers in layers.items()}}
        for part, layers in kept.items()
    }
    digest = hashlib.sha256((model / "config.json").read_bytes()).hexdigest()
    path.write_text(json.dumps({"schema": 1, "config_sha256": digest, "parts": parts}))
    return path


def tree(directory: Path) -> dict[str, bytes]:
    """Every file of a folder, hidden ones too."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def _random(draw: random.Random, dtype: str, shape: tuple[int, ...]) -> Held:
    count = 1
    for side in shape:
        count *= side
    return Held(dtype, shape, draw.randbytes(count * _BYTES[dtype]))


def _fused(found: Tensors) -> Tensors:
    """Put the experts of a layer into two tensors, as transformers has them in memory."""
    left: Tensors = {}
    for name, held in found.items():
        one = re.fullmatch(r"(.*\.experts\.)(\d+)\.(gate|up|down)_proj\.weight", name)
        if one is None:
            left[name] = held
            continue
        fused = f"{one[1]}{'down_proj' if one[3] == 'down' else 'gate_up_proj'}"
        before = left.get(fused, Held(held.dtype, (0, 1, 1), b""))
        count = before.shape[0] + (one[3] != "up")
        left[fused] = Held(held.dtype, (count, 1, 1), before.content + held.content)
    return {
        name: Held(held.dtype, (held.shape[0], len(held.content) // 2 // held.shape[0]), held.content)
        if ".experts." in name
        else held
        for name, held in left.items()
    }
