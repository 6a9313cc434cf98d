"""Read from a server's start-up lines what its stages really take beside weights and KV cache.

vLLM 0.30 writes for each stage, once its graphs are captured (`vllm/v1/worker/gpu_worker.py`), how much it consumed, how
much of that are activations, and, before (`gpu_model_runner.py`), how much the weights took. vLLM-Omni puts the stage's
process in front of each line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

STAGE = re.compile(r"[Ss]tage[-_ ]?(\d)")
"""The stage that a line is of, by its number."""
_WEIGHTS = re.compile(r"Model loading took ([\d.]+) GiB")
_USED = re.compile(
    r"Actual usage is ([\d.]+) GiB for consumed memory \(weights \+ non-torch\), ([\d.]+) GiB for peak activation, "
    r"and ([\d.]+) GiB for CUDAGraph memory"
)
_CACHE = re.compile(r"KV cache size: ([\d,]+) tokens")
_AVAILABLE = re.compile(r"Available KV cache memory: ([\d.]+) GiB")
_NAMES = {"0": "thinker", "1": "talker", "2": "code2wav"}


class StageStart(msgspec.Struct, frozen=True):
    """What one stage took when it started. `context_bytes`: consumed beside the weights; with captured graphs."""

    context_bytes: int
    activation_bytes: int


class Cache(msgspec.Struct, frozen=True):
    """The KV cache that a stage made."""

    tokens: int
    bytes: int


def parse(lines: Iterable[str]) -> dict[str, StageStart]:
    """Read the last start of each stage that a log has whole."""
    weights: dict[str, float] = {}
    found: dict[str, StageStart] = {}
    for line in lines:
        at = STAGE.search(line)
        name = _NAMES.get(at[1]) if at else None
        if name is None:
            continue
        if loaded := _WEIGHTS.search(line):
            weights[name] = float(loaded[1])
        elif (used := _USED.search(line)) and name in weights:
            consumed, activation, graphs = (float(used[group]) for group in (1, 2, 3))
            beside = max(0.0, consumed - weights[name]) + graphs
            found[name] = StageStart(round(beside * 2**30), round(activation * 2**30))
    return found


def caches(lines: Iterable[str]) -> dict[str, Cache]:
    """Read how large a KV cache each stage made."""
    available: dict[str, float] = {}
    found: dict[str, Cache] = {}
    for line in lines:
        at = STAGE.search(line)
        name = _NAMES.get(at[1]) if at else None
        if name is None:
            continue
        if memory := _AVAILABLE.search(line):
            available[name] = float(memory[1])
        elif (made := _CACHE.search(line)) and name in available:
            found[name] = Cache(int(made[1].replace(",", "")), round(available[name] * 2**30))
    return found
