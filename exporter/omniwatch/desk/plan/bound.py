"""Compute how fast decoding can be at most: every token reads its weights once, and memory has a bandwidth."""

from __future__ import annotations

import msgspec

from omniwatch.desk.plan import components
from omniwatch.desk.plan.memory import Result, Wanted
from omniwatch.desk.plan.model import Model, Text

FRAMES_PER_S = 12.5
CHUNK_FRAMES = 4
"""Codec frames that code2wav turns to sound at once: what the deploy files of this project set."""


class Bound(msgspec.Struct, frozen=True):
    """Upper bounds from memory bandwidth alone. Computing, launching and the picture come on top: expect half or less.

    One stream at a time. `streams` is how many times faster than 12.5 frames a second the talker, code predictor and code2wav
    then are; streams that are decoded together share some of the reading, which this leaves out.
    """

    bandwidth_bytes_s: float
    thinker_token_bytes: int
    thinker_tokens_s: float
    frame_bytes: int
    frames_s: float
    streams: float


def bound(wanted: Wanted, result: Result) -> Bound | None:
    """Compute the bounds; None where the device's bandwidth is unknown."""
    bandwidth = result.device.bandwidth_bytes_s
    if not bandwidth:
        return None
    model = wanted.model.sliced(wanted.experts)
    token = _token_bytes(model, result)
    frame = _frame_bytes(model, result) if result.talker else 0
    return Bound(
        bandwidth_bytes_s=bandwidth,
        thinker_token_bytes=token,
        thinker_tokens_s=bandwidth / token,
        frame_bytes=frame,
        frames_s=bandwidth / frame if frame else 0.0,
        streams=bandwidth / frame / FRAMES_PER_S if frame else 0.0,
    )


def _bytes(result: Result, name: str) -> int:
    part = result.component(name)
    return part.bytes if part else 0


def _active(text: Text) -> float:
    return text.num_experts_per_tok / text.num_experts if text.num_experts else 1.0


def _token_bytes(model: Model, result: Result) -> int:
    """Bytes of weights that one thinker token reads: the experts chosen, attention, routers and the head."""
    thinker = model.thinker_config
    embedding = _bytes(result, "thinker_embedding")
    head = embedding if thinker.tied else embedding / 2
    return round(
        _bytes(result, "thinker_experts") * _active(thinker.text_config)
        + _bytes(result, "thinker_attention")
        + _bytes(result, "thinker_routers")
        + head
    )


def _frame_bytes(model: Model, result: Result) -> int:
    """Bytes of weights for one codec frame: the talker once, the code predictor once a group, code2wav once a chunk."""
    talker = model.talker
    if talker is None:
        return 0
    text, predictor = talker.text_config, talker.code_predictor_config
    shapes = components.shapes(model)
    # Embeddings of both are looked up, not read through.
    looked_up = 2 * text.vocab_size * text.hidden_size
    steps = predictor.num_code_groups - 1
    heads = 2 * steps * predictor.vocab_size * predictor.hidden_size
    layers = components.parameters(shapes["code_predictor"]) * 2 - 2 * heads
    return round(
        _bytes(result, "talker_experts") * _active(text)
        + _bytes(result, "talker_rest")
        - looked_up
        + steps * layers
        + heads
        + _bytes(result, "code2wav") / CHUNK_FRAMES
    )
