"""Compute the plan: weights, KV cache, what the server's processes need beside them, and whether a device holds it.

Pure: files, clocks and devices are read elsewhere and passed in.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from omniwatch.bundle.profiles import SYSTEM_BYTES
from omniwatch.desk.plan import components
from omniwatch.desk.plan.checkpoint import Weights
from omniwatch.desk.plan.components import BF16, COMPONENTS, STAGES, Type
from omniwatch.desk.plan.device import DeviceMemory
from omniwatch.desk.plan.model import Model, PlanError, Text
from omniwatch.desk.plan.startup import StageStart

CONTEXT_BYTES = 500_000_000
"""Assumed: one CUDA context with its kernels, for each stage, which is a process."""
ACTIVATION_BYTES = {"thinker": 1_000_000_000, "talker": 500_000_000, "code2wav": 500_000_000}
"""Assumed: the largest intermediate results of each stage."""
KV_BYTES = {"bf16": 2, "fp8": 1}
"""Bytes of one number in the KV cache."""
MAX_MODEL_LEN = 32768
"""Tokens of one stream, where nothing else is said and the model can take as many."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is planned. `types` are by component; one that is absent stays as the checkpoint has it, or in bf16."""

    name: str
    model: Model
    device: DeviceMemory
    weights: Weights | None = None
    types: Mapping[str, Type] = {}
    experts: Mapping[str, int] = {}
    """Experts a layer that are kept, by part; a part that is absent keeps all."""
    talker: bool = True
    streams: int = 1
    max_model_len: int = 0
    """Tokens of one stream; 0: MAX_MODEL_LEN, or less where the model takes no more."""
    kv_type: str = "bf16"
    starts: Mapping[str, StageStart] = {}
    """What a server's start-up lines said, by stage."""

    @property
    def tokens(self) -> int:
        """Tokens of one stream."""
        return self.max_model_len or min(MAX_MODEL_LEN, self.model.context)


class Component(msgspec.Struct, frozen=True):
    """One part of the model. `exact`: the sum of its tensors' bytes in the checkpoint, not computed from a type."""

    name: str
    words: str
    stage: str
    parameters: int
    type: str
    bytes: int
    exact: bool


class Stage(msgspec.Struct, frozen=True):
    """One of the server's processes. `share`: the part of the device's memory that it needs (gpu_memory_utilization).

    `measured` tells whether context and activations are from a server's start-up lines, not assumed.
    """

    name: str
    id: int
    weights_bytes: int
    kv_bytes_per_token: int
    kv_bytes: int
    context_bytes: int
    activation_bytes: int
    needed_bytes: int
    measured: bool
    share: float


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint needs on a device. Bytes throughout; `fits` compares `needed_bytes` with `available_bytes`."""

    name: str
    device: DeviceMemory
    experts: int
    """Experts a layer of the thinker."""
    talker_experts: int | None
    """The same of the talker; null without one."""
    talker: bool
    streams: int
    max_model_len: int
    kv_type: str
    components: list[Component]
    stages: list[Stage]
    parameters: int
    weights_bytes: int
    kv_bytes_per_stream: int
    kv_bytes: int
    overhead_bytes: int
    """Contexts and activations."""
    needed_bytes: int
    system_bytes: int
    available_bytes: int
    """The device's memory without what the system needs."""
    spare_bytes: int
    """Negative: by how much it does not fit."""
    fits: bool
    streams_that_fit: int
    notes: list[str] = []

    def component(self, name: str) -> Component | None:
        """Find a component by its name."""
        return next((part for part in self.components if part.name == name), None)


def kv_bytes_per_token(text: Text, kv_type: str) -> int:
    """Bytes that one token takes in the KV cache: keys and values of every layer."""
    return text.num_hidden_layers * 2 * text.num_key_value_heads * text.head * KV_BYTES[kv_type]


def compute(wanted: Wanted) -> Result:
    """Compute the plan. Raises PlanError for what the model or the types do not allow."""
    model = wanted.model
    if model.talker is None and wanted.talker:
        wanted = msgspec.structs.replace(wanted, talker=False)
    if not wanted.talker:
        model = model.silent()
    if wanted.experts:
        model = model.sliced(wanted.experts)
    if not 1 <= wanted.tokens <= wanted.model.context:
        raise PlanError(
            f"--max-model-len {wanted.tokens}: the model takes 1 to {wanted.model.context} tokens (max_position_embeddings)"
        )
    if wanted.streams < 1:
        raise PlanError(f"--streams {wanted.streams}: expected at least 1")
    if wanted.kv_type not in KV_BYTES:
        raise PlanError(f'KV type "{wanted.kv_type}": expected {" or ".join(KV_BYTES)}')
    parts, notes = _components(wanted, model)
    stages = _stages(wanted, model, parts)
    needed = sum(stage.needed_bytes for stage in stages)
    kv_per_stream = sum(stage.kv_bytes_per_token for stage in stages) * wanted.tokens
    kv = kv_per_stream * wanted.streams
    available = max(0, wanted.device.memory_bytes - SYSTEM_BYTES)
    return Result(
        name=wanted.name,
        device=wanted.device,
        experts=model.thinker_config.text_config.num_experts,
        talker_experts=model.talker.text_config.num_experts if model.talker else None,
        talker=wanted.talker,
        streams=wanted.streams,
        max_model_len=wanted.tokens,
        kv_type=wanted.kv_type,
        components=parts,
        stages=stages,
        parameters=sum(part.parameters for part in parts),
        weights_bytes=sum(part.bytes for part in parts),
        kv_bytes_per_stream=kv_per_stream,
        kv_bytes=kv,
        overhead_bytes=sum(stage.context_bytes + stage.activation_bytes for stage in stages),
        needed_bytes=needed,
        system_bytes=SYSTEM_BYTES,
        available_bytes=available,
        spare_bytes=available - needed,
        fits=needed <= available,
        streams_that_fit=max(0, (available - needed + kv) // kv_per_stream),
        notes=notes,
    )


def _components(wanted: Wanted, model: Model) -> tuple[list[Component], list[str]]:
    notes = list(wanted.weights.notes) if wanted.weights else []
    stored = components.stored(wanted.weights.tensors) if wanted.weights else {}
    whole = components.shapes(wanted.model)
    types = {**_stated(wanted, notes), **wanted.types}
    found = []
    for name, counts in components.shapes(model).items():
        words, stage = COMPONENTS[name]
        here = stored.get(name, [])
        cut = bool(wanted.experts) and counts != whole[name]
        if here and not cut and name not in wanted.types:
            size, kind = sum(tensor.size for tensor in here), _stored_type(wanted, [t.dtype for t in here])
            exact = True
            held = sum(components.parameters({tensor.shape: 1}) for tensor in here)
            if kind in ("bf16", "f16", "f32") and held != components.parameters(counts):
                notes.append(
                    f"{words}: {components.parameters(counts):,} parameters by config.json, {held:,} in the files"
                )
        elif stored and not here:
            notes.append(f"{words}: not in the checkpoint's files; computed")
            size, kind, exact = (
                components.size(counts, types.get(name, BF16)),
                str(types.get(name, BF16)),
                False,
            )
        else:
            size, kind, exact = (
                components.size(counts, types.get(name, BF16)),
                str(types.get(name, BF16)),
                False,
            )
        found.append(Component(name, words, STAGES[stage], components.parameters(counts), kind, size, exact))
    return found, notes


def _stated(wanted: Wanted, notes: list[str]) -> dict[str, Type]:
    """Read types from a config.json that names a quantisation, where no tensors are there to look at."""
    stated = wanted.model.quantization_config
    if stated is None or wanted.weights is not None:
        return {}
    kind = {4: "int4", 8: "int8"}.get(stated.bits) or ("fp8" if "fp8" in stated.quant_method else "")
    if not kind:
        notes.append(f"quantization_config {stated.quant_method or '?'}: not understood; bf16 is assumed")
        return {}
    group = max(0, stated.group_size) if kind != "fp8" else 0
    notes.append(
        f"quantization_config says {stated.quant_method}, {kind}: assumed for the thinker's experts and attention"
    )
    return dict.fromkeys(components.GROUPS["thinker"], Type(kind, group))


def _stored_type(wanted: Wanted, dtypes: list[str]) -> str:
    """Name the type of a component's tensors: packed numbers are what config.json says they are."""
    common = max(set(dtypes), key=dtypes.count)
    if any(dtype in ("I32", "U32", "U8", "I8") for dtype in dtypes):
        stated = wanted.model.quantization_config
        return {4: "int4", 8: "int8"}.get(stated.bits if stated else 0, "packed")
    if any(dtype.startswith("F8_E4M3") or dtype.startswith("F8_E5M2") for dtype in dtypes):
        return "fp8"
    return common.lower()


def _stages(wanted: Wanted, model: Model, parts: list[Component]) -> list[Stage]:
    texts = {"thinker": model.thinker_config.text_config}
    if model.talker is not None:
        texts["talker"] = model.talker.text_config
    found = []
    for number, name in enumerate(STAGES):
        weights = sum(part.bytes for part in parts if part.stage == name)
        if not weights:
            continue
        start = wanted.starts.get(name)
        per_token = kv_bytes_per_token(texts[name], wanted.kv_type) if name in texts else 0
        kv = per_token * wanted.tokens * wanted.streams
        context = start.context_bytes if start else CONTEXT_BYTES
        activation = start.activation_bytes if start else ACTIVATION_BYTES[name]
        total = weights + kv + context + activation
        # In hundredths, upwards: a stage that gets less than it needs does not start.
        share = -(-total * 100 // wanted.device.memory_bytes) / 100
        found.append(
            Stage(name, number, weights, per_token, kv, context, activation, total, start is not None, share)
        )
    return found
