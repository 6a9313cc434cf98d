"""Tell by a tensor's name whether dropping experts changes it. Pure.

A name that could depend on the experts in a way not known here is an error: to copy such a tensor unchanged would break the model.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from omniwatch.desk.plan.components import component_of
from omniwatch.desk.slice import SliceError

SUFFIXES = {
    "weight", "bias",
    "qweight", "qzeros", "scales", "g_idx",  # GPTQ, AWQ
    "weight_scale", "weight_scale_inv", "input_scale",  # fp8, int8
    "weight_packed", "weight_shape", "weight_zero_point", "weight_g_idx",  # compressed-tensors
}  # fmt: skip
"""What a projection of one expert may consist of."""

_FEED_FORWARD = re.compile(r"(thinker|talker)\.model\.layers\.(0|[1-9]\d*)\.mlp\.(.+)")
_EXPERT = re.compile(r"experts\.(0|[1-9]\d*)\.((?:gate|up|down)_proj)\.(\w+)")
_FUSED = re.compile(r"experts\.(gate_up_proj|gate_proj|up_proj|down_proj)(_scale|_scale_inv|_bias)?")
_DENSE = re.compile(r"(shared_expert\.)?(gate|up|down)_proj\.\w+|shared_expert_gate\.\w+")
_SUSPECT = re.compile(r"expert|router|\.gate\.")


class OfExpert(NamedTuple):
    """A tensor of one expert; `rest` is its name behind the expert's number."""

    part: str
    layer: int
    number: int
    rest: str

    def renumbered(self, number: int) -> str:
        """The tensor's name under another number."""
        return f"{self.part}.model.layers.{self.layer}.mlp.experts.{number}.{self.rest}"


class OfAll(NamedTuple):
    """A tensor with one row, or one block, for each expert, along its first dimension: a router, or fused experts."""

    part: str
    layer: int
    is_router: bool


def read(name: str) -> OfExpert | OfAll | None:
    """Read a tensor's name; None: the experts have no part in it. Raises SliceError for a name that is not understood."""
    if not component_of(name):
        raise SliceError(f"{name[:100]}: no tensor of a Qwen3-Omni (thinker., talker. or code2wav.)")
    found = _FEED_FORWARD.fullmatch(name)
    if found is None:
        if _SUSPECT.search(name) and not name.startswith(
            ("thinker.visual.", "thinker.audio_tower.", "code2wav.")
        ):
            raise SliceError(f"{name[:100]}: what this tensor has to do with the experts is not known")
        return None
    part, layer, rest = found[1], int(found[2]), found[3]
    if rest == "gate.weight":
        return OfAll(part, layer, is_router=True)
    if _FUSED.fullmatch(rest):
        return OfAll(part, layer, is_router=False)
    expert = _EXPERT.fullmatch(rest)
    if expert and expert[3] in SUFFIXES:
        return OfExpert(part, layer, int(expert[1]), f"{expert[2]}.{expert[3]}")
    if _DENSE.fullmatch(rest):
        return None
    raise SliceError(f"{name[:100]}: what this tensor has to do with the experts is not known")
