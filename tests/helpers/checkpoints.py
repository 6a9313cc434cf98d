"""Small checkpoints of a Qwen3-Omni, written whole or in shards, with zeros for weights."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omniwatch.desk.plan import checkpoint
from omniwatch.desk.plan.model import Model, Tensor, parse, tensors

TEXT = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "moe_intermediate_size": 4,
    "intermediate_size": 6,
    "num_experts": 4,
    "num_experts_per_tok": 2,
}
CONFIG: dict[str, Any] = {
    "model_type": "qwen3_omni_moe",
    "thinker_config": {
        "text_config": TEXT,
        "audio_config": {"encoder_layers": 1, "d_model": 8, "encoder_ffn_dim": 4, "output_dim": 16, "downsample_hidden_size": 2},
        "vision_config": {"depth": 1, "hidden_size": 8, "intermediate_size": 4, "out_hidden_size": 16, "in_chans": 1},
    },
    "talker_config": {
        "text_config": {**TEXT, "shared_expert_intermediate_size": 5},
        "code_predictor_config": {"hidden_size": 16, "num_hidden_layers": 1, "vocab_size": 9, "num_code_groups": 4},
        "thinker_hidden_size": 16,
    },
    "code2wav_config": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "decoder_dim": 16},
}  # fmt: skip


def config(**changes: Any) -> bytes:
    return json.dumps({**CONFIG, **changes}).encode()


def file(path: Path, found: Iterable[Tensor], dtype: str = "BF16", **changes: Any) -> int:
    """Write a safetensors file with zeros for tensors; return the tensors' bytes."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for tensor in found:
        end = at + tensor.parameters * checkpoint.BITS[dtype] // 8
        entries[tensor.name] = {"dtype": dtype, "shape": tensor.shape, "data_offsets": [at, end]}
        at = end
    header = json.dumps({**entries, **changes}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(at))
    return at


def made(directory: Path, shards: int = 1, **changes: Any) -> tuple[Model, int]:
    """Write a checkpoint; return its model and the sum of its tensors' bytes."""
    (directory / "config.json").write_bytes(config(**changes))
    model = parse(config(**changes), "config.json")
    every = list(tensors(model))
    if shards == 1:
        return model, file(directory / "model.safetensors", every)
    size, places = 0, {}
    for shard in range(shards):
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        size += file(directory / name, every[shard::shards])
        places |= {tensor.name: name for tensor in every[shard::shards]}
    index = {"metadata": {"total_size": size}, "weight_map": places}
    (directory / checkpoint.INDEX).write_text(json.dumps(index))
    return model, size
