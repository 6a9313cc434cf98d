"""Find the cheapest change that makes a plan fit: the one that costs a listener least, in the order tried here."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import reduce

import msgspec

from omniwatch.desk.plan.components import COMPONENTS, GROUPS, Type, parse_type
from omniwatch.desk.plan.memory import Result, Wanted, compute

SHORT_TOKENS = 8192
"""Some ten minutes of speech in and out."""
Step = Callable[[Wanted], Wanted]


class Change(msgspec.Struct, frozen=True):
    """Options of `omniwatch plan` that make it fit, and what is then needed and spare."""

    options: list[str]
    words: str
    needed_bytes: int
    spare_bytes: int


def cheapest(wanted: Wanted) -> Change | None:
    """Find a change; None where it fits as it is, or where none of these helps.

    One change is tried before two together: KV cache in fp8, a shorter context, int8 and then int4 for the thinker, fewer
    streams, int4 for the talker's experts too, no talker.
    """
    if compute(wanted).fits:
        return None
    steps = _steps(wanted)
    for count in range(1, 5):
        for chosen in itertools.combinations(steps, count):
            keys = [key for key, _, _, _ in chosen]
            if len(set(keys)) < count:
                continue
            changed = reduce(lambda so_far, step: step[3](so_far), chosen, wanted)
            result = compute(changed)
            if result.fits:
                return _change([(option, words) for _, option, words, _ in chosen], result)
    return None


def _change(chosen: list[tuple[str, str]], result: Result) -> Change:
    return Change(
        [option for option, _ in chosen],
        ", ".join(words for _, words in chosen),
        result.needed_bytes,
        result.spare_bytes,
    )


def _steps(wanted: Wanted) -> list[tuple[str, str, str, Step]]:
    """List what can be changed, the cheapest first: what excludes another, its options, its words, the change itself."""
    found: list[tuple[str, str, str, Step]] = []
    if wanted.kv_type != "fp8":
        found.append(("kv", "--kv-cache-dtype fp8", "KV cache in fp8", _kv))
    if wanted.tokens > SHORT_TOKENS:
        found.append(
            ("tokens", f"--max-model-len {SHORT_TOKENS}", f"contexts of {SHORT_TOKENS} tokens", _short)
        )
    sizes = {part.name: part.bytes for part in compute(wanted).components}
    for group, kinds, words in (
        ("thinker", "int8", "thinker in int8"),
        ("thinker", "int4", "thinker in int4"),
        ("all", "int4", "thinker and talker's experts in int4"),
    ):
        kind = parse_type(kinds)
        after = compute(_typed(wanted, group, kind))
        if sum(part.bytes for part in after.components) < sum(sizes.values()):
            step = (group, kind)
            found.append(("types", f"--quantization {group}={kinds}", words, _retyping(*step)))
    if wanted.streams > 1:
        found.insert(
            min(4, len(found)),
            ("streams", "--streams 1", "one stream", lambda now: _replaced(now, streams=1)),
        )
    if wanted.talker and wanted.model.talker is not None:
        found.append(("talker", "--no-talker", "no speech", lambda now: _replaced(now, talker=False)))
    return found


def _kv(now: Wanted) -> Wanted:
    return _replaced(now, kv_type="fp8")


def _short(now: Wanted) -> Wanted:
    return _replaced(now, max_model_len=SHORT_TOKENS)


def _retyping(group: str, kind: Type) -> Step:
    return lambda now: _typed(now, group, kind)


def _typed(now: Wanted, group: str, kind: Type) -> Wanted:
    names = GROUPS.get(group, (group,))
    assert all(name in COMPONENTS for name in names)
    return _replaced(now, types={**now.types, **dict.fromkeys(names, kind)})


def _replaced(now: Wanted, **changes: object) -> Wanted:
    return msgspec.structs.replace(now, **changes)
