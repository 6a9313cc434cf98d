"""Have the whole model answer, and score its experts token by token while it does.

The answers go where `slice score` finds them. Nothing here is streamed, masked or batched: the model generates, and each router is
computed once more from what went into its layer.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from omniwatch.desk.slice import answering, asking, source

LIMITS = answering.Limits(tokens=6, seconds=0.8, seed=5, speaker="Ethan")
Sums = dict[tuple[str, int, str, int], list[float]]


class Listener:
    """Takes what goes into each layer's experts."""

    def __init__(self, model: Any) -> None:
        self._sums: Sums = defaultdict(list)
        self._kinds: dict[str, list[str]] = {"thinker": [], "talker": []}
        config = model.config.thinker_config
        self._names = {config.audio_token_id: "speech", config.image_token_id: "picture"}
        for part in ("thinker", "talker"):
            module = getattr(model, part)
            module.register_forward_pre_hook(getattr(self, part), with_kwargs=True)
            for number, layer in enumerate(module.model.layers):
                layer.mlp.register_forward_pre_hook(self._taken(part, number))

    def thinker(self, _: Any, __: Any, given: dict[str, Any]) -> None:
        self._kinds["thinker"] = self._of(given["input_ids"][0].tolist())

    def talker(self, _: Any, __: Any, given: dict[str, Any]) -> None:
        is_frame = given["inputs_embeds"].shape[1] == 1
        self._kinds["talker"] = ["speech"] if is_frame else self._of(given["talker_input_ids"][0].tolist())

    def _of(self, tokens: list[int]) -> list[str]:
        return [self._names.get(token, "text") for token in tokens]

    def _taken(self, part: str, number: int) -> Any:
        def taken(block: Any, given: tuple[Any, ...]) -> None:
            states = given[0].reshape(-1, block.gate.hidden_dim)
            assert len(states) == len(self._kinds[part])
            for state, kind in zip(states, self._kinds[part], strict=True):
                logits = (block.gate.weight @ state).tolist()
                odds = torch.softmax(torch.tensor(logits, dtype=torch.float64), 0)
                chosen = sorted(range(len(logits)), key=lambda one: -logits[one])[: block.gate.top_k]
                whole = sum(float(odds[one]) for one in chosen) if block.gate.norm_topk_prob else 1.0
                for one in chosen:
                    gate, up = (block.experts.gate_up_proj[one] @ state).chunk(2)
                    found = block.experts.down_proj[one] @ (torch.nn.functional.silu(gate) * up)
                    self._sums[part, number, kind, one].append(float(odds[one]) / whole * float(found.norm()))

        return taken

    def found(self) -> list[dict[str, Any]]:
        return [
            {"part": part, "layer": layer, "kind": kind, "expert": one, "count": len(needs), "score": sum(needs) / len(needs)}
            for (part, layer, kind, one), needs in sorted(self._sums.items())
        ]  # fmt: skip


def scores(directory: Path, data: Path, out: Path) -> list[dict[str, Any]]:
    """Answer the questions into `out`, and return the scores."""
    found = source.read(directory)
    asked = asking.read(data)
    model = answering.load(found, "cpu", torch.float32)
    out.mkdir()
    listener = Listener(model)
    with torch.no_grad():
        answering.make(model, found, asked, out, LIMITS, set(), lambda line: None)
        for sample in asking.Processor(directory).samples(asked, {}, written=True)[len(asked) :]:
            model.thinker(**sample.inputs)
    return listener.found()
