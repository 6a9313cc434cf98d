"""Run a layer's experts one by one, and keep how much each was needed: REAP's score, counts, and routed weight.

REAP (arXiv 2510.13999): the mean, over the tokens that an expert was chosen for, of its gate weight times the norm of its output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from omniwatch.desk.slice.ranking import MODALITIES
from omniwatch.desk.slice.scores import Layer


class Routing:
    """What one layer's router did, by expert and by kind of input. `kinds` are places in MODALITIES, a token each."""

    def __init__(self, experts: int) -> None:
        self._experts = experts
        self._needed = torch.zeros(len(MODALITIES) * experts, dtype=torch.float64)
        self._counts = torch.zeros(len(MODALITIES) * experts, dtype=torch.int64)
        self._weights = torch.zeros(experts, dtype=torch.float64)
        self.kinds = torch.zeros(0, dtype=torch.int64)

    def took(self, expert: int, tokens: Any, weights: Any, norms: Any) -> None:
        """Take the tokens that one expert was chosen for, their gate weights and the norms of its outputs."""
        places = self.kinds[tokens.cpu()] * self._experts + expert
        weights = weights.double().cpu()
        self._needed.index_add_(0, places, weights * norms.double().cpu())
        self._counts.index_add_(0, places, torch.ones_like(places))
        self._weights[expert] += weights.sum()

    def layer(self, number: int) -> Layer:
        """Return the layer's scores. A kind of input that no token stood for is left out."""
        counts = self._counts.view(len(MODALITIES), -1)
        means = self._needed.view(len(MODALITIES), -1) / counts.clamp(min=1)
        there = [place for place in range(len(MODALITIES)) if counts[place].any()]
        return Layer(
            number,
            {MODALITIES[place]: means[place].tolist() for place in there},
            {MODALITIES[place]: counts[place].tolist() for place in there},
        )

    def share(self, gone: list[int]) -> float:
        """Return the share of all routed weight that went to some experts."""
        return float(self._weights[gone].sum() / self._weights.sum().clamp(min=1e-300))


def forward(experts: list[tuple[Any, Any]], activation: Any, routing: Routing) -> Callable[..., Any]:
    """Return what takes the place of transformers' experts: the same sum, and `routing` told of each expert's part in it."""
    linear = torch.nn.functional.linear

    def computed(hidden: Any, chosen: Any, weights: Any) -> Any:
        whole = torch.zeros_like(hidden)
        for expert in chosen.unique().tolist():
            both, down = experts[expert]
            tokens, places = torch.where(chosen == expert)
            gate, up = linear(hidden[tokens], both).chunk(2, dim=-1)
            found = linear(activation(gate) * up, down)
            gates = weights[tokens, places]
            routing.took(expert, tokens, gates, found.norm(dim=-1))
            whole.index_add_(0, tokens, found * gates[:, None])
        return whole

    return computed
