"""Hold the published recommendations and tricks against what is computed, and against the published figures themselves.

The figures are of "Qwen3-Omni-Flash, memory and first frame" (docs/claims.md has each claim's own verdict).
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from omniwatch.desk.advise import Constraints, Facts, Figure, judge
from omniwatch.desk.advise.facts import planned
from omniwatch.desk.plan import components, planning
from omniwatch.desk.plan.device import of_size
from omniwatch.desk.plan.memory import Result, Wanted

RED_LINE_S = 0.75
"""The red line of the other published text, for the same edge."""
PUBLISHED = "published"


class Row(NamedTuple):
    """A measured column of the published table."""

    memory_gb: float
    first_audio_s: float
    tokens_per_s: float
    p99_s: float


CASCADE, NATIVE = Row(68.0, 1.9, 1020.0, 3.4), Row(144.8, 0.51, 1350.0, 2.1)
CARD_GB, EDGE_GB, EDGE_FIRST_S, EDGE_MEMORY_GB, CHEAP_CARD_GB = 80.0, 64.0, 1.1, 42.0, 24.0
TEXT_ONLY_TOKENS = 8192
"""Tokens of one stream on the card of CHEAP_CARD_GB; everything else is planned with the default of `omniwatch plan`."""


class Conclusion(msgspec.Struct, frozen=True, kw_only=True):
    """A published recommendation: whether it follows, and the figures that support or contradict it."""

    recommendation: str
    verdict: str
    supports: list[str]
    contradicts: list[str]


class Trick(msgspec.Struct, frozen=True, kw_only=True):
    """A published trick: the real flag, and the effect as far as it can be computed."""

    trick: str
    published: str
    flag: str
    effect: str
    measure: str | None


def conclusions() -> list[Conclusion]:
    """Judge the three recommendations on the published figures and on the plan's."""
    return [_cloud(), _edge(), _cheap()]


def _cloud() -> Conclusion:
    wins = {
        "first frame": (
            NATIVE.first_audio_s,
            CASCADE.first_audio_s,
            NATIVE.first_audio_s < CASCADE.first_audio_s,
        ),
        "P99": (NATIVE.p99_s, CASCADE.p99_s, NATIVE.p99_s < CASCADE.p99_s),
        "tokens/s": (NATIVE.tokens_per_s, CASCADE.tokens_per_s, NATIVE.tokens_per_s > CASCADE.tokens_per_s),
    }
    fits = judge(
        "cloud-native",
        Constraints(cloud_memory_gb=CARD_GB),
        Facts(memory_gb=Figure(value=NATIVE.memory_gb, source=PUBLISHED)),
    )
    contradicts = [f"{name}: {a:g} against {b:g}" for name, (a, b, won) in wins.items() if not won]
    if any(check.name == "memory" and check.verdict == "fails" for check in fits.checks):
        contradicts.append(
            f"memory: {NATIVE.memory_gb:g} GB cannot have been measured on the one card of {CARD_GB:g} GB that is named"
        )
    return Conclusion(
        recommendation="cloud, many at once: native beats the cascade in latency and throughput",
        verdict="follows from the published times; its memory figure contradicts its own set-up"
        if all(won for *_, won in wins.values())
        else "does not follow",
        supports=[f"{name}: {a:g} against {b:g}" for name, (a, b, won) in wins.items() if won],
        contradicts=contradicts,
    )


def _edge() -> Conclusion:
    constraints = Constraints(memory_gb=EDGE_GB, red_line_s=RED_LINE_S, percentile=50)
    computed = planned("edge-int4", constraints)
    facts = Facts(
        memory_gb=Figure(value=EDGE_MEMORY_GB, source=PUBLISHED),
        first_audio_s=Figure(value=EDGE_FIRST_S, source=PUBLISHED),
    )
    checks = {check.name: check for check in judge("edge-int4", constraints, facts).checks}
    supports: list[str] = []
    contradicts: list[str] = []
    if checks["memory"].verdict == "passes":
        supports.append(f"memory: {EDGE_MEMORY_GB:g} GB of {EDGE_GB:g} (published)")
    if computed is not None:
        (supports if computed.value <= EDGE_GB else contradicts).append(
            f"memory: {computed.value:.1f} GB whole, so that nothing needs to be loaded in turn ({computed.source})"
        )
    if checks["first audio P50"].verdict == "fails":
        contradicts.append(f"first frame: {EDGE_FIRST_S:g} s against a red line of {RED_LINE_S:g} s")
    return Conclusion(
        recommendation="edge: INT4 in segments runs on an Orin of 64 GB with a first frame of about 1 s, which is enough",
        verdict="holds for memory, without segments; past the red line by its own first frame"
        if contradicts
        else "follows",
        supports=supports,
        contradicts=contradicts,
    )


def _cheap() -> Conclusion:
    saved = 1 - _plan("bf16", talker=False).parameters / _plan("bf16").parameters
    supports: list[str] = []
    contradicts: list[str] = []
    for kind, needed_gb in text_only_gb().items():
        line = f"memory in {kind}, {TEXT_ONLY_TOKENS} tokens: {needed_gb:.1f} GB against {CHEAP_CARD_GB:g} GB (computed)"
        (supports if needed_gb <= CHEAP_CARD_GB else contradicts).append(line)
    contradicts.append(
        f"computing: without the talker {saved:.0%} of the parameters are gone, not 40 % (computed)"
    )
    return Conclusion(
        recommendation="cost: text and pictures only, talker off, on one card of 24 GB, saves 40 % of the computing",
        verdict="holds for memory in INT4 only; how much computing is saved is not measured"
        if supports
        else "does not follow",
        supports=supports,
        contradicts=contradicts,
    )


def text_only_gb() -> dict[str, float]:
    """Return what the thinker alone needs in each type, with one stream of TEXT_ONLY_TOKENS."""
    return {
        name: _plan(kind, talker=False, max_model_len=TEXT_ONLY_TOKENS).needed_bytes / 1e9
        for name, kind in (("INT4", "int4"), ("bf16", "bf16"))
    }


def _plan(kind: str, *, talker: bool = True, max_model_len: int = 0) -> Result:
    name, model, weights = planning.read(None)
    wanted = Wanted(
        name=name,
        model=model,
        weights=weights,
        device=of_size(EDGE_GB),
        types=components.parse_types([kind]),
        talker=talker,
        max_model_len=max_model_len,
    )
    return planning.plan(wanted).result


def tricks() -> list[Trick]:
    """Return the published table of tricks: each with its real flag, and what is computed of its effect."""
    bf16, silent, int4 = _plan("bf16"), _plan("bf16", talker=False), _plan("int4")
    gone = (bf16.needed_bytes - silent.needed_bytes) / 1e9
    weights = 1 - int4.weights_bytes / bf16.weights_bytes
    needed = 1 - int4.needed_bytes / bf16.needed_bytes
    bench = "omniwatch bench chain before and after, then omniwatch bench compare"
    return [
        Trick(
            trick="disable_talker()",
            published="saves 10 to 12 GB",
            flag='no such flag; a deploy file without the talker (profile "orin-text")',
            effect=f"{gone:.1f} GB (computed)",
            measure=None,
        ),
        Trick(
            trick="INT4 by GPTQ",
            published="memory -48 %, throughput less than -5 %",
            flag="--quantization, and a checkpoint that was quantised",
            effect=f"weights -{weights:.0%}, all that is needed -{needed:.0%} (computed); throughput not measured",
            measure=bench,
        ),
        Trick(
            trick="video at 1 frame a second",
            published="memory -18 %, first frame -0.1 s",
            flag='--media-io-kwargs \'{"video": {"fps": 1}}\'',
            effect="not measured",
            measure=f"{bench}, with videos beside the questions",
        ),
        Trick(
            trick="PagedAttention block=512",
            published="long-tail latency -25 %",
            flag="--block-size; which sizes are taken depends on the attention backend",
            effect="not measured",
            measure=f"{bench}, 368 turns or more for a P99",
        ),
        Trick(
            trick="CUDA graphs captured before",
            published="first frame -30 ms",
            flag="none: on by default; --enforce-eager switches them off",
            effect="not measured",
            measure=f"{bench}, with and without --enforce-eager",
        ),
    ]
