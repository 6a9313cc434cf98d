"""Write the vLLM-Omni 0.30 command and deploy file of a plan, as one shell script."""

from __future__ import annotations

import json
import shlex
from typing import Any

import msgspec
import yaml

from omniwatch.bundle.profiles import VLLM_OMNI
from omniwatch.desk.plan.bound import CHUNK_FRAMES
from omniwatch.desk.plan.memory import Result, Stage
from omniwatch.desk.plan.model import PlanError

TAP = "omniwatch.tap.Tap"
LEFT_CONTEXT_FRAMES = 25
"""Codec frames that code2wav hears again before each chunk: what vLLM-Omni ships."""
BATCHED_TOKENS = 8192
VOCODER_TOKENS = 65536
"""Longest input of code2wav, in codes: what vLLM-Omni ships."""
THINKER_ONLY = "qwen3_omni_moe_thinker_only"
"""The pipeline of vLLM-Omni without a talker."""


class Flags(msgspec.Struct, frozen=True):
    """A command for vLLM-Omni and the deploy file that its --deploy-config names."""

    command: list[str]
    deploy: dict[str, Any]
    notes: list[str]


def flags(result: Result, checkpoint: str, program: str = VLLM_OMNI, deploy: str = "stages.yaml") -> Flags:
    """Write command and deploy file. Raises PlanError where the plan does not fit."""
    if not result.fits:
        raise PlanError(too_much(result))
    shares = {str(stage.id): {"gpu_memory_utilization": stage.share} for stage in result.stages}
    if sum(stage.share for stage in result.stages) > 1:
        raise PlanError("no flags: the stages' shares of the memory, rounded up, are more than all of it")
    command = [
        program,
        "serve",
        checkpoint,
        "--omni",
        *("--deploy-config", deploy),
        *("--stage-overrides", json.dumps(shares, separators=(",", ":"))),
        *("--max-model-len", str(result.max_model_len)),
        *("--max-num-seqs", str(result.streams)),
    ]
    if result.kv_type != "bf16":
        command += ["--kv-cache-dtype", result.kv_type]
    command += ["--middleware", TAP]
    return Flags(command, _deploy(result), _notes(result))


def too_much(result: Result) -> str:
    """Say why there are no flags for a plan that does not fit."""
    return f"no flags: it does not fit, {-result.spare_bytes / 1e9:.1f} GB too much (without --flags: what would)"


def as_script(found: Flags) -> str:
    """Write a shell script that makes the deploy file beside it and starts the server; further arguments are added."""
    at = found.command.index("--deploy-config") + 1
    lines = [
        "#!/bin/sh",
        "# vLLM-Omni 0.30, as planned by: omniwatch plan --flags",
        *(f"# {note}" for note in found.notes),
    ]
    lines += ["set -eu", f"cat > {shlex.quote(found.command[at])} <<'STAGES'"]
    lines += [yaml.safe_dump(found.deploy, sort_keys=False).rstrip(), "STAGES"]
    words = [shlex.quote(word) for word in found.command]
    lines.append(" \\\n  ".join([f"exec {' '.join(words[:4])}", *_pairs(words[4:]), '"$@"']))
    return "\n".join(lines) + "\n"


def _pairs(words: list[str]) -> list[str]:
    """Put each flag and its value on one line."""
    return [f"{flag} {value}" for flag, value in zip(words[::2], words[1::2], strict=True)]


def _notes(result: Result) -> list[str]:
    notes = []
    small = sorted({part.type.partition(":")[0] for part in result.components if not part.exact} - {"bf16"})
    if small:
        parts = ", ".join(part.words for part in result.components if not part.exact and part.type != "bf16")
        notes.append(f"Needs a checkpoint that holds {parts} in {', '.join(small)}: no flag makes one.")
    if not all(stage.measured for stage in result.stages):
        notes.append(
            "Contexts and activations are assumed: plan again with --startup-log once it has started."
        )
    return notes


def _deploy(result: Result) -> dict[str, Any]:
    stages = [_stage(stage, result) for stage in result.stages]
    if not result.talker:
        return {"pipeline": THINKER_ONLY, "enable_prefix_caching": False, "stages": stages}
    extra = {
        "initial_codec_chunk_frames": CHUNK_FRAMES,
        "codec_chunk_frames": CHUNK_FRAMES,
        "codec_left_context_frames": LEFT_CONTEXT_FRAMES,
    }
    connector = {"name": "SharedMemoryConnector", "extra": extra}
    return {"async_chunk": True, "connectors": {"connector_of_shared_memory": connector}, "stages": stages}


def _stage(stage: Stage, result: Result) -> dict[str, Any]:
    found: dict[str, Any] = {
        "stage_id": stage.id,
        "devices": "0",
        "max_num_seqs": result.streams,
        "gpu_memory_utilization": stage.share,
        "enable_prefix_caching": False,
        # vLLM-Omni's own choice for this model is Triton, which takes no INT4 and runs on CUDA only.
        "moe_backend": "auto",
    }
    if stage.name == "code2wav":
        return found | {
            "max_num_batched_tokens": VOCODER_TOKENS,
            "max_model_len": VOCODER_TOKENS,
            "enable_chunked_prefill": False,
            "async_scheduling": False,
            "input_connectors": {"from_stage_1": "connector_of_shared_memory"},
            "default_sampling_params": {
                "temperature": 0.0,
                "top_p": 1.0,
                "top_k": -1,
                "max_tokens": VOCODER_TOKENS,
                "repetition_penalty": 1.1,
            },
        }
    found |= {"max_num_batched_tokens": BATCHED_TOKENS}
    if stage.name == "thinker":
        return found | {"default_sampling_params": {"temperature": 0.0, "max_tokens": 2048}}
    return found | {
        "input_connectors": {"from_stage_0": "connector_of_shared_memory"},
        "default_sampling_params": {
            "seed": 42,
            "temperature": 0.9,
            "top_k": 50,
            "max_tokens": 4096,
            "repetition_penalty": 1.05,
        },
    }
