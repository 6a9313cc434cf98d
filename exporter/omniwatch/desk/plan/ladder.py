"""Tabulate cheaper plans: what each smaller type or missing part saves, and what fewer experts leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from omniwatch.desk.plan.change import SHORT_TOKENS
from omniwatch.desk.plan.components import parse_types
from omniwatch.desk.plan.memory import Result, Wanted, compute

TYPES: Mapping[str, tuple[str, ...]] = {
    "bf16": ("all=bf16",),
    "int8": ("all=int8",),
    "int4 thinker, bf16 talker": ("thinker=int4", "talker=bf16"),
    "int4 both": ("all=int4",),
}
SHARES = (1, 3 / 4, 1 / 2, 3 / 8, 1 / 4, 1 / 8, 1 / 16)
"""Parts of the experts that are kept."""


class Rung(msgspec.Struct, frozen=True):
    """One step, on top of those before it. `saved_bytes`: what it saves against the step before."""

    words: str
    options: list[str]
    weights_bytes: int
    kv_bytes: int
    needed_bytes: int
    saved_bytes: int
    fits: bool
    streams_that_fit: int


class Slice(msgspec.Struct, frozen=True):
    """What is left with fewer experts: parameters, and the weights' bytes by type."""

    experts: int
    parameters: int
    bytes: dict[str, int]


def rungs(wanted: Wanted) -> Iterator[Rung]:
    """List the steps from the plan as it is to the smallest that speaks, then the one that is silent."""
    now, before = wanted, compute(wanted)
    yield _rung("as planned", [], before, before)
    for words, options, changed in _steps(wanted):
        now = msgspec.structs.replace(now, **changed)
        result = compute(now)
        if result.needed_bytes < before.needed_bytes:
            yield _rung(words, options, result, before)
            before = result


def _steps(wanted: Wanted) -> Iterator[tuple[str, list[str], dict[str, object]]]:
    yield "KV cache in fp8", ["--kv-cache-dtype fp8"], {"kv_type": "fp8"}
    if wanted.tokens > SHORT_TOKENS:
        yield (
            f"contexts of {SHORT_TOKENS} tokens",
            [f"--max-model-len {SHORT_TOKENS}"],
            {"max_model_len": SHORT_TOKENS},
        )
    types = dict(wanted.types)
    for words, texts in (
        ("thinker in int8", "thinker=int8"),
        ("thinker in int4", "thinker=int4"),
        ("talker's experts in int4", "talker=int4"),
    ):
        types = {**types, **parse_types([texts])}
        yield words, [f"--quantization {texts}"], {"types": types}
    yield "no talker", ["--no-talker"], {"talker": False}


def _rung(words: str, options: list[str], result: Result, before: Result) -> Rung:
    return Rung(
        words,
        options,
        result.weights_bytes,
        result.kv_bytes,
        result.needed_bytes,
        before.needed_bytes - result.needed_bytes,
        result.fits,
        result.streams_that_fit,
    )


def slices(wanted: Wanted) -> Iterator[Slice]:
    """List the weights by experts kept, down to as many as a token chooses."""
    texts = [wanted.model.thinker_config.text_config]
    if wanted.model.talker is not None:
        texts.append(wanted.model.talker.text_config)
    least = max(text.num_experts_per_tok for text in texts)
    most = min(text.num_experts for text in texts)
    kept = sorted({round(share * most) for share in SHARES if share * most >= least}, reverse=True)
    for experts in kept:
        # Types are computed, so what the files hold has no part in it.
        asked = msgspec.structs.replace(
            wanted, weights=None, experts=dict.fromkeys(wanted.model.parts, experts)
        )
        found = {
            name: compute(msgspec.structs.replace(asked, types=parse_types(types)))
            for name, types in TYPES.items()
        }
        yield Slice(
            experts,
            next(iter(found.values())).parameters,
            {name: result.weights_bytes for name, result in found.items()},
        )
