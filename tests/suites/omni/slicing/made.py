"""Make a Qwen3-Omni whose experts are known: which ones are needed, by which tokens, and which ones never matter.

`random`: every router and every expert is drawn, and so large that each matters. `known`:

Channels 0 and 1 of every state are kept free: 0 is always 1, and 1 is +1 for text and -1 for speech. No layer writes to them. Routers
look at these alone, so expert by expert it is known who takes them:

| expert | taken by | what it does |
|---|---|---|
| 0 | text | something large |
| 1 | text, with less weight | the same as 0 |
| 2 | speech | something large |
| 3 | speech, with less weight | the same as 2 |
| 4, 5 | nobody | noise |

So 0 and 2 do all of the work: a token gives all of its weight to the one of them that it takes, once the copies are gone.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3OmniMoeConfig, Qwen3OmniMoeForConditionalGeneration

EXPERTS = 6
FREE = 2
"""Channels that no layer writes to."""
MARGIN = 60.0
"""By how much a router's logit of an expert that is taken lies above one that is not, for a state of length 1 a channel."""
TEXT, SPEECH = torch.tensor([1.0, 1.0]), torch.tensor([1.0, -1.0])


def constant(module: Any, channels: torch.Tensor) -> None:
    """Have a linear layer with a bias put these into the free channels."""
    module.weight[:FREE] = 0
    module.bias[:FREE] = channels


def layer(module: Any) -> None:
    """Make the experts of one layer."""
    experts, gate = module.mlp.experts, module.mlp.gate
    module.self_attn.o_proj.weight[:FREE] = 0
    torch.nn.init.normal_(experts.gate_up_proj, std=0.3)
    torch.nn.init.normal_(experts.down_proj, std=0.06)
    experts.down_proj[:, :FREE] = 0
    for copy, original in ((1, 0), (3, 2)):
        experts.gate_up_proj[copy] = experts.gate_up_proj[original]
        experts.down_proj[copy] = experts.down_proj[original]
    gate.weight[:] = 0
    for expert, (always, spoken) in enumerate(
        [(1.0, MARGIN), (0.0, MARGIN), (1.0, -MARGIN), (0.0, -MARGIN), (-4 * MARGIN, 0.0), (-4 * MARGIN, 0.0)]
    ):
        gate.weight[expert, :FREE] = torch.tensor([always, spoken])
    if hasattr(module.mlp, "shared_expert"):
        module.mlp.shared_expert.down_proj.weight[:FREE] = 0


def fill(model: Any) -> None:
    thinker, talker = model.thinker, model.talker
    words = thinker.model.embed_tokens.weight
    torch.nn.init.normal_(words)
    words[:, :FREE] = TEXT
    torch.nn.init.normal_(thinker.lm_head.weight, std=0.4)
    torch.nn.init.normal_(thinker.audio_tower.proj2.weight)
    torch.nn.init.normal_(thinker.audio_tower.proj2.bias)
    constant(thinker.audio_tower.proj2, SPEECH)
    for projection, channels in ((talker.text_projection, TEXT), (talker.hidden_projection, SPEECH)):
        torch.nn.init.normal_(projection.linear_fc1.weight, std=0.3)
        torch.nn.init.normal_(projection.linear_fc2.weight, std=0.3)
        constant(projection.linear_fc2, channels)
    codec = talker.model.codec_embedding.weight
    torch.nn.init.normal_(codec)
    # With the words that go along, a frame has what speech has.
    codec[:, :FREE] = SPEECH - TEXT
    for table in talker.code_predictor.model.codec_embedding:
        table.weight[:, :FREE] = 0
    torch.nn.init.normal_(talker.codec_head.weight, std=0.4)
    for part in (thinker, talker):
        for module in part.model.layers:
            layer(module)


def draw(model: Any) -> None:
    for part in (model.thinker, model.talker):
        for module in part.model.layers:
            for weight, std in (
                (module.mlp.gate.weight, 0.3),
                (module.mlp.experts.gate_up_proj, 0.3),
                (module.mlp.experts.down_proj, 0.06),
            ):
                torch.nn.init.normal_(weight, std=std)


def make(source: Path, directory: Path, kind: str) -> None:
    """Write a model of that kind, of the layers and sizes of the one in `source`."""
    shutil.copytree(source, directory, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    config = json.loads((source / "config.json").read_text())
    for part in ("thinker", "talker"):
        text = config[f"{part}_config"]["text_config"]
        text |= {name: EXPERTS for name in ("num_experts", "num_local_experts") if name in text}
    torch.manual_seed(0)
    model = Qwen3OmniMoeForConditionalGeneration(Qwen3OmniMoeConfig.from_dict(config)).to(torch.bfloat16)
    with torch.no_grad():
        {"known": fill, "random": draw}[kind](model)
    model.save_pretrained(directory)
