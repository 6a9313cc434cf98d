"""Judge ways to run a speaking model against what a site allows, by what was computed and measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from omniwatch.desk.chain import Chain
from omniwatch.system.errors import UserError

CANDIDATES = ("cloud-native", "edge-int4", "thinker-only", "cascade")
Verdict = Literal["passes", "fails", "undecided", "not measured"]


class AdviceError(UserError):
    """Limits or results that nothing can be judged by."""


class Constraints(msgspec.Struct, frozen=True, kw_only=True):
    """What the site allows; None: anything."""

    memory_gb: float | None = None
    """Memory of the device, GB of 10^9 bytes; nothing else runs there but `system_gb`."""
    cloud_memory_gb: float | None = None
    """Memory of the server in the data centre."""
    red_line_s: float | None = None
    """Longest good time to the first audio, at the percentile below."""
    percentile: int = 90
    streams: int = 1
    watts: float | None = None
    cost: float | None = None
    """Highest good cost an hour, in the currency of the prices."""
    max_model_len: int = 8192


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure with its interval, where it has one, and where it comes from."""

    value: float
    low: float | None = None
    high: float | None = None
    source: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one candidate. None: nobody measured or computed it."""

    memory_gb: Figure | None = None
    first_audio_s: Figure | None = None
    first_token_s: Figure | None = None
    audio_rate: Figure | None = None
    """Audio seconds a second, of each client, at the constraints' number of streams."""
    watts: Figure | None = None
    cost: Figure | None = None


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One number against one limit. `excess` is how far past the limit it is, as a share; negative within."""

    name: str
    unit: str
    limit: float
    verdict: Verdict
    value: float | None = None
    excess: float | None = None
    source: str | None = None
    measure: str | None = None
    """The command that would measure it."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with its checks. `decides` is the check that decided, or came closest to."""

    name: str
    words: str
    verdict: Verdict
    decides: str | None
    checks: list[Check]


class Rule(NamedTuple):
    """How one constraint is checked."""

    name: str
    unit: str
    limit: float
    known: Figure | None
    most: bool
    """Whether the limit is an upper one."""
    measure: str


WORDS = {
    "cloud-native": "the whole model in bf16, in a data centre",
    "edge-int4": "the whole model in INT4, on the device",
    "thinker-only": "the thinker in INT4, on the device: text only",
    "cascade": "ASR, LLM and TTS, on the device",
}
_BENCH = {
    "cloud-native": "omniwatch bench chain QUESTIONS --native URL",
    "edge-int4": "omniwatch bench chain QUESTIONS --native URL",
    "thinker-only": "omniwatch bench chain QUESTIONS --native URL",
    "cascade": "omniwatch bench chain QUESTIONS --asr URL --llm URL --tts URL",
}


def advise(constraints: Constraints, facts: Mapping[str, Facts]) -> list[Judged]:
    """Judge every candidate: those that pass first, then the undecided, then those that fail, the nearest miss first."""
    found = [judge(name, constraints, facts.get(name, Facts())) for name in CANDIDATES]
    order = {"passes": 0, "undecided": 1, "not measured": 2, "fails": 3}
    return sorted(found, key=lambda one: (order[one.verdict], _worst(one.checks)))


def judge(name: str, constraints: Constraints, known: Facts) -> Judged:
    """Judge one candidate. It passes if every check does, and fails by one that fails; what nobody measured is not guessed."""
    checks = [_check(rule) for rule in _rules(name, constraints, known)]
    verdicts = [check.verdict for check in checks]
    verdict: Verdict = "passes"
    for worse in ("fails", "not measured", "undecided"):
        if worse in verdicts:
            verdict = worse
            break
    if not checks:
        verdict = "undecided"
    deciding = [check for check in checks if check.verdict == verdict]
    decides = max(deciding, key=lambda check: -1e9 if check.excess is None else check.excess, default=None)
    return Judged(
        name=name,
        words=WORDS[name],
        verdict=verdict,
        decides=decides.name if decides else None,
        checks=checks,
    )


def chain_of(name: str) -> Chain:
    """Return the chain that a candidate is measured as."""
    return "cascade" if name == "cascade" else "native"


def _rules(name: str, constraints: Constraints, known: Facts) -> list[Rule]:
    bench = f"{_BENCH[name]} --concurrency {constraints.streams}"
    chain = chain_of(name)
    memory = constraints.cloud_memory_gb if name == "cloud-native" else constraints.memory_gb
    rules = []
    if memory is not None:
        rules.append(Rule("memory", "GB", memory, known.memory_gb, True, f"{bench} --watch {chain}=PID"))
    if constraints.red_line_s is not None:
        # Who reads does not wait for a voice: the first words count.
        first = (
            ("first token", known.first_token_s)
            if name == "thinker-only"
            else ("first audio", known.first_audio_s)
        )
        rules.append(
            Rule(f"{first[0]} P{constraints.percentile}", "s", constraints.red_line_s, first[1], True, bench)
        )
    if name != "thinker-only":
        rules.append(
            Rule(
                f"audio seconds a second, {constraints.streams} at once",
                "",
                1.0,
                known.audio_rate,
                False,
                bench,
            )
        )
    if constraints.watts is not None and name != "cloud-native":
        rules.append(
            Rule(
                "rails",
                "W",
                constraints.watts,
                known.watts,
                True,
                f"{bench} --watch {chain}=PID, on the Jetson",
            )
        )
    if constraints.cost is not None:
        rules.append(Rule("cost an hour", "", constraints.cost, known.cost, True, f"--price {name}=AMOUNT"))
    return rules


def _check(rule: Rule) -> Check:
    known = rule.known
    if known is None:
        return Check(
            name=rule.name, unit=rule.unit, limit=rule.limit, verdict="not measured", measure=rule.measure
        )
    best, worst = (known.low, known.high) if rule.most else (known.high, known.low)
    best, worst = (known.value if end is None else end for end in (best, worst))
    sign = 1 if rule.most else -1
    verdict: Verdict = "undecided"
    if sign * (worst - rule.limit) <= 0:
        verdict = "passes"
    elif sign * (best - rule.limit) > 0:
        verdict = "fails"
    ratio = known.value / rule.limit if rule.limit else float("inf")
    return Check(
        name=rule.name,
        unit=rule.unit,
        limit=rule.limit,
        verdict=verdict,
        value=known.value,
        excess=ratio - 1 if rule.most else 1 - ratio,
        source=known.source,
        measure=f"{rule.measure}, with more turns" if verdict == "undecided" else None,
    )


def _worst(checks: Sequence[Check]) -> float:
    return max((check.excess for check in checks if check.excess is not None), default=0.0)
