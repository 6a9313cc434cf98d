"""Compare a cut model with the original whose router masks the dropped experts, in float32. Prints one JSON object.

equality.py MODEL OUT KEEP
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3OmniMoeForConditionalGeneration

MASKED = -1e9
TOKENS = 40


def load(directory: Path) -> tuple[Any, dict[str, Any]]:
    model, about = Qwen3OmniMoeForConditionalGeneration.from_pretrained(
        directory, dtype=torch.float32, output_loading_info=True
    )
    return model.eval(), {
        name: sorted(map(str, keys)) for name, keys in about.items() if name.endswith("_keys")
    }


def mask(router: Any, dropped: list[int]) -> None:
    """Have a router never choose some experts."""

    def forward(hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        logits = torch.nn.functional.linear(hidden.reshape(-1, router.hidden_dim), router.weight)
        logits[:, dropped] = MASKED
        weights, chosen = torch.topk(torch.softmax(logits, dtype=torch.float, dim=-1), router.top_k, dim=-1)
        if router.norm_topk_prob:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        return logits, weights, chosen

    router.forward = forward


def inputs(model: Any, seed: int) -> dict[str, torch.Tensor]:
    """Words, a second of sound, and words."""
    draw = torch.Generator().manual_seed(seed)
    config = model.config.thinker_config
    features = torch.randn(1, 128, 100, generator=draw)
    heard = [config.audio_start_token_id, *[config.audio_token_id] * 13, config.audio_end_token_id]
    words = torch.randint(0, 150_000, (2, TOKENS // 2), generator=draw).tolist()
    ids = torch.tensor([[*words[0], *heard, *words[1]]])
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "input_features": features,
        "feature_attention_mask": torch.ones(1, 100, dtype=torch.long),
    }


@torch.no_grad()
def outputs(model: Any, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits of the thinker, and of the talker on the same input."""
    draw = torch.Generator().manual_seed(seed)
    thinker = model.thinker(**inputs(model, seed)).logits
    width = model.config.talker_config.text_config.hidden_size
    embeds = torch.randn(1, TOKENS, width, generator=draw)
    positions = torch.arange(TOKENS).view(1, 1, -1).expand(3, 1, -1)
    talker = model.talker(
        inputs_embeds=embeds, attention_mask=torch.ones(1, TOKENS, dtype=torch.long), position_ids=positions
    ).logits
    return thinker, talker


def main() -> None:
    whole, _ = load(Path(sys.argv[1]))
    cut, about = load(Path(sys.argv[2]))
    keep = json.loads(Path(sys.argv[3]).read_text())["parts"]
    unmasked = outputs(whole, 1)
    for part, found in keep.items():
        for layer, kept in found["layers"].items():
            dropped = sorted(set(range(found["experts"])) - set(kept))
            mask(getattr(whole, part).model.layers[int(layer)].mlp.gate, dropped)
    differences = []
    for seed in range(1, 4):
        pairs = zip(outputs(whole, seed), outputs(cut, seed), strict=True)
        differences.append([float((one - other).abs().max()) for one, other in pairs])
    cost = [float((one - other).abs().max()) for one, other in zip(unmasked, outputs(cut, 1), strict=True)]
    sys.stdout.write(json.dumps({"keys": about, "differences": differences, "cost": cost}) + "\n")


if __name__ == "__main__":
    main()
