"""Measure a speaking model (native) against a chain of ASR, LLM and TTS (cascade), as a client sees them.

Times are seconds on the client's clock. A turn's times count from the moment the question's last byte was handed to
the kernel.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from omniwatch.system.errors import UserError

Chain = Literal["native", "cascade"]
CHAINS: tuple[Chain, ...] = get_args(Chain)
PARTS: dict[str, Chain] = {"native": "native", "asr": "cascade", "llm": "cascade", "tts": "cascade"}
"""The servers of a run by name, each with its chain."""
Outcome = Literal["ok", "silent", "error", "malformed", "cut", "timeout", "unreachable"]
"""How a turn can go, in the probe's words (docs/bench-chain.md)."""
Seconds = Annotated[float, Meta(ge=0)]
Bytes = Annotated[int, Meta(ge=0)]


class ChainError(UserError):
    """Arguments, servers or results that nothing can be measured or compared with."""


class Turn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One turn and how it went. Times are seconds after the question's last byte was sent; null: it did not come."""

    chain: Chain
    concurrency: Annotated[int, Meta(ge=1)]
    number: Annotated[int, Meta(ge=0)]
    question: str
    start_s: float
    """When the question was sent, seconds after the run began."""
    outcome: Outcome
    detail: str | None = None
    part: str | None = None
    """Which server failed: native, asr, llm or tts."""
    transcript_s: Seconds | None = None
    first_token_s: Seconds | None = None
    first_sentence_s: Seconds | None = None
    first_audio_s: Seconds | None = None
    """Until the first sample could play."""
    end_s: Seconds | None = None
    """Until the answer was complete, or it failed, or the client broke it off."""
    audio_s: Seconds = 0.0
    underrun_s: Seconds = 0.0
    """Silence between the first and the last sound, for a player with the run's playout buffer."""
    tokens: Annotated[int, Meta(ge=0)] | None = None
    """Text tokens as the server counts them; null where it does not."""
    text_s: Seconds | None = None
    """From the first to the last piece of text."""
    transcript: str | None = None
    text: str = ""
    is_broken_off: bool = False
    """Whether the client closed the request while the answer was being spoken."""
    follows_break: bool = False
    """Whether it was asked at once after an answer was broken off."""


class Level(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A block of turns of one chain, so many at once; seconds after the run began."""

    chain: Chain
    concurrency: int
    start_s: float
    end_s: float


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question that was asked. `sha256` is of everything that was sent of it."""

    name: str
    sha256: str
    audio_s: float
    text: str | None = None
    picture: str | None = None


class Memory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one watched part used of the machine's memory. null: this machine or server does not say."""

    chain: Chain
    watched: str
    before_bytes: Bytes | None = None
    """When the run began, servers loaded."""
    held_bytes: Bytes | None = None
    """The most that was held while the run lasted."""
    needed_bytes: Bytes | None = None
    """Held, less the part of the KV cache that was never used."""
    how: str
    """Where `held_bytes` comes from, in words."""
    note: str | None = None


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Signals of the whole device while one chain was asked."""

    chain: Chain
    gpu_before_bytes: Bytes | None = None
    gpu_held_bytes: Bytes | None = None
    """NvMapMemUsed on an Orin, memory in use by NVML elsewhere: all processes together."""
    rails_joules: dict[str, float] = {}
    """Energy of each rail over the chain's blocks; rails are not the board."""
    turns: int = 0


class Kv(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The KV cache of one server while it was asked."""

    chain: Chain
    url: str
    used_share: float
    """The largest share in use that was seen, of the fullest stage."""
    cache_bytes: Bytes | None = None


class Foreign(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A result of `vllm bench serve --omni --save-result`, as a further column."""

    name: str
    model: str | None
    concurrency: int | None
    completed: int
    failed: int | None
    figures: dict[str, float]
    """Names as in the table: "first_audio_s p50" and the like; seconds."""
    unknown: list[str]
    """What such a result cannot tell, in words."""


class Result(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run, whole: the report is worked out from this alone."""

    schema: Literal[1] = 1
    tool: str
    began: str
    seed: int
    machine: dict[str, str | int | None]
    servers: dict[str, str]
    """URL of each part that was asked."""
    models: dict[str, str]
    settings: dict[str, Any]
    questions: list[Question]
    levels: list[Level]
    turns: list[Turn]
    memory: list[Memory] = []
    devices: list[DeviceUse] = []
    kv: list[Kv] = []
    foreign: list[Foreign] = []
