"""Sort a model's tensors into components, and compute what each takes in a given type."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from omniwatch.desk.plan.checkpoint import Stored
from omniwatch.desk.plan.model import Model, PlanError, tensors

COMPONENTS: Mapping[str, tuple[str, int]] = {
    "thinker_experts": ("thinker: experts", 0),
    "thinker_attention": ("thinker: attention, norms", 0),
    "thinker_embedding": ("thinker: embedding, head", 0),
    "thinker_routers": ("thinker: routers", 0),
    "audio_encoder": ("audio encoder", 0),
    "vision_encoder": ("vision encoder", 0),
    "talker_experts": ("talker: experts", 1),
    "talker_rest": ("talker: attention, shared experts, projections, routers", 1),
    "code_predictor": ("code predictor", 1),
    "code2wav": ("code2wav", 2),
}
"""Every component: its words, and the stage of vLLM-Omni's pipeline that loads it."""

STAGES = ("thinker", "talker", "code2wav")
GROUPS: Mapping[str, tuple[str, ...]] = {
    "thinker": ("thinker_experts", "thinker_attention"),
    "talker": ("talker_experts",),
    "all": ("thinker_experts", "thinker_attention", "talker_experts"),
}
"""Short names for the components that quantisers take. The rest of the talker loses more than it saves."""

_PREFIXES = (
    ("thinker.audio_tower.", "audio_encoder"),
    ("thinker.visual.", "vision_encoder"),
    ("thinker.model.embed_tokens.", "thinker_embedding"),
    ("thinker.lm_head.", "thinker_embedding"),
    ("talker.code_predictor.", "code_predictor"),
    ("code2wav.", "code2wav"),
)
_EXPERTS = re.compile(r"(thinker|talker)\.model\.layers\.\d+\.mlp\.experts\.")
_ROUTER = re.compile(r"thinker\.model\.layers\.\d+\.mlp\.gate\.")

KINDS = ("bf16", "fp8", "int8", "int4")
_BITS = {"bf16": 16, "fp8": 8, "int8": 8, "int4": 4}
_SCALE_BYTES = 2
"""A group's scale, in half precision."""
GROUP = 128
"""Weights that share a scale, where nothing else is said: what GPTQ and AWQ checkpoints have."""


class Type(msgspec.Struct, frozen=True):
    """How a component's matrices are stored; its vectors stay in bf16. `group`: weights that share one scale, 0: none."""

    kind: str = "bf16"
    group: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.group}" if self.group not in (0, GROUP) else self.kind

    def size(self, shape: Sequence[int]) -> int:
        """Bytes of one tensor of this shape."""
        count = functools.reduce(int.__mul__, shape, 1)
        if len(shape) != 2 or self.kind == "bf16":
            return 2 * count
        scales = shape[0] * -(-shape[1] // self.group) * _SCALE_BYTES if self.group else 0
        return -(-count * _BITS[self.kind] // 8) + scales


BF16 = Type()


def parse_type(text: str) -> Type:
    """Read `bf16`, `fp8`, `int8`, `int4`, or one of the last two with its group, `int4:64`. Raises PlanError."""
    kind, colon, group = text.partition(":")
    if kind not in KINDS:
        raise PlanError(f'"{text}": expected {", ".join(KINDS)}, or a group with it as in int4:64')
    if not colon:
        return Type(kind, GROUP if kind.startswith("int") else 0)
    if not kind.startswith("int") or not group.isdecimal() or not 8 <= int(group) <= 65536:
        raise PlanError(
            f'"{text}": expected a group of 8 to 65536 weights behind int8 or int4, as in int4:64'
        )
    return Type(kind, int(group))


def parse_types(texts: Iterable[str]) -> dict[str, Type]:
    """Read `TYPE` (thinker and talker) or `COMPONENT=TYPE`, the later ones winning. Raises PlanError."""
    found: dict[str, Type] = {}
    for text in texts:
        names, equals, kind = text.rpartition("=")
        for name in names.split(",") if equals else ["all"]:
            if name not in GROUPS and name not in COMPONENTS:
                raise PlanError(f'"{name}": expected one of {", ".join([*GROUPS, *COMPONENTS])}')
            found |= dict.fromkeys(GROUPS.get(name, (name,)), parse_type(kind))
    return found


def component_of(name: str) -> str:
    """Name the component that a tensor belongs to; "" for one of no Qwen3-Omni."""
    for prefix, component in _PREFIXES:
        if name.startswith(prefix):
            return component
    if found := _EXPERTS.match(name):
        return f"{found[1]}_experts"
    if _ROUTER.match(name):
        return "thinker_routers"
    if name.startswith("thinker."):
        return "thinker_attention"
    return "talker_rest" if name.startswith("talker.") else ""


@functools.lru_cache(maxsize=32)
def shapes(model: Model) -> Mapping[str, Mapping[tuple[int, ...], int]]:
    """Count the tensors of each shape, by component. A component that the model does not have is absent."""
    found: dict[str, Counter[tuple[int, ...]]] = {}
    for tensor in tensors(model):
        found.setdefault(component_of(tensor.name), Counter())[tensor.shape] += 1
    return {name: found[name] for name in COMPONENTS if name in found}


def parameters(counts: Mapping[tuple[int, ...], int]) -> int:
    """Number of parameters in tensors of these shapes."""
    return sum(functools.reduce(int.__mul__, shape, 1) * number for shape, number in counts.items())


def size(counts: Mapping[tuple[int, ...], int], kind: Type) -> int:
    """Bytes of tensors of these shapes."""
    return sum(kind.size(shape) * number for shape, number in counts.items())


def stored(found: Iterable[Stored]) -> dict[str, list[Stored]]:
    """Sort a checkpoint's tensors by component. Raises PlanError for one of no Qwen3-Omni."""
    by: dict[str, list[Stored]] = {}
    for tensor in found:
        component = component_of(tensor.name)
        if not component:
            raise PlanError(f"{tensor.name[:80]}: no tensor of a Qwen3-Omni (thinker., talker. or code2wav.)")
        by.setdefault(component, []).append(tensor)
    return by
