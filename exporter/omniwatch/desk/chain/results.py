"""Read, write, merge and import results. A result is one JSON document; its schema is docs/bench-chain.schema.json."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from omniwatch.desk.chain import ChainError, Foreign, Result
from omniwatch.system import atomic_write, user_file

THEIR_NAMES = {
    "audio_ttfp": "first_audio_s",
    "ttft": "first_token_s",
    "e2el": "end_s",
    "audio_underrun": "underrun_s",
}
"""`vllm bench serve`'s metrics by the names used here; what it measures as a mean only is left out."""
RETRIED = "turns that failed on the network and were tried again, up to three times, are not in its figures"
CONTINUITY = "silence while speaking: the chat path never measures it and prints 100 %"
INTERVALS = "intervals: the document holds percentiles, not turns"


class Document(Result, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A result as it is written: with its figures, worked out again whenever it is read."""

    figures: list[dict[str, Any]] = msgspec.field(default_factory=list)


def schema() -> str:
    """Return the JSON schema of a result."""
    return json.dumps(msgspec.json.schema(Document), indent=2) + "\n"


def write(path: Path, result: Result) -> None:
    """Write a result with its figures, whole or not at all. Raises OSError."""
    from omniwatch.desk.chain.figures import summary

    fields = {name: getattr(result, name) for name in Result.__struct_fields__}
    text = msgspec.json.encode(Document(**fields, figures=summary(result)))
    atomic_write.replace(path, msgspec.json.format(text, indent=1) + b"\n")


def read(path: Path) -> Result:
    """Read a result. Raises ChainError, OSError."""
    try:
        return msgspec.json.decode(user_file.read(path), type=Document)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ChainError(f"{path}: not a result of omniwatch bench chain: {error}") from error


def merge(named: Sequence[tuple[Path, Result]]) -> Result:
    """Put results of several runs into one: other chains, other levels or other machines' watches of the same questions.

    Raises ChainError where two hold the same chain at the same concurrency, or their questions or player differ.
    """
    first_path, first = named[0]
    seen: dict[tuple[str, int], Path] = {}
    for path, result in named:
        for key in ("buffer_ms", "interrupt_s"):
            if result.settings.get(key) != first.settings.get(key):
                raise ChainError(
                    f"{path}: {key} is {result.settings.get(key)}, in {first_path} {first.settings.get(key)}"
                )
        asked, others = ({(q.name, q.sha256) for q in r.questions} for r in (result, first))
        if result.questions and first.questions and asked != others:
            raise ChainError(f"{path}: asks other questions than {first_path}")
        for cell in {(turn.chain, turn.concurrency) for turn in result.turns}:
            if cell in seen:
                raise ChainError(f"{path}: {cell[0]} x{cell[1]} is in {seen[cell]} already")
            seen[cell] = path
    results = [result for _, result in named]
    return Result(
        tool=first.tool,
        began=min(result.began for result in results),
        seed=first.seed,
        machine=first.machine,
        servers={k: v for r in results for k, v in r.servers.items()},
        models={k: v for r in results for k, v in r.models.items()},
        settings={**first.settings, "merged": len(results)},
        questions=first.questions or next((r.questions for r in results if r.questions), []),
        levels=[one for r in results for one in r.levels],
        turns=[one for r in results for one in r.turns],
        memory=[one for r in results for one in r.memory],
        devices=[one for r in results for one in r.devices],
        kv=[one for r in results for one in r.kv],
        foreign=[one for r in results for one in r.foreign],
    )


def with_foreign(result: Result, foreign: Iterable[Foreign]) -> Result:
    """Return the result with further columns."""
    return msgspec.structs.replace(result, foreign=[*result.foreign, *foreign])


def import_vllm(path: Path) -> Foreign:
    """Read what `vllm bench serve --omni --save-result` wrote. Raises ChainError, OSError."""
    try:
        document = json.loads(user_file.read(path))
        completed = int(document["completed"])
    except (ValueError, LookupError, TypeError) as error:
        raise ChainError(
            f"{path}: not a result of vllm bench serve: no number of completed requests"
        ) from error
    figures: dict[str, float] = {}
    for theirs, ours in THEIR_NAMES.items():
        for percent in ("50", "90", "99"):
            for name, scale in ((f"p{percent}_{theirs}_ms", 1e-3), (f"p{percent}_{theirs}_s", 1.0)):
                value = document.get(name)
                if isinstance(value, (int, float)):
                    figures[f"{ours} p{percent}"] = float(value) * scale
    for theirs, ours in (("audio_throughput", "audio_s_per_s"), ("output_throughput", "tokens_per_s_all")):
        if isinstance(document.get(theirs), (int, float)):
            figures[ours] = float(document[theirs])
    unknown = [INTERVALS, RETRIED]
    backend = str(document.get("backend") or document.get("endpoint_type") or "")
    if "speech" not in backend:
        # Of the backends only the one for speech measures continuity.
        figures = {name: value for name, value in figures.items() if not name.startswith("underrun_s")}
        unknown.append(CONTINUITY)
    concurrency = document.get("max_concurrency")
    return Foreign(
        name=path.stem,
        model=document.get("model_id"),
        concurrency=concurrency if isinstance(concurrency, int) else None,
        completed=completed,
        failed=document.get("failed") if isinstance(document.get("failed"), int) else None,
        figures=figures,
        unknown=unknown,
    )


def empty(foreign: Iterable[Foreign], tool: str, began: str) -> Result:
    """Return a result that holds imported columns only."""
    return Result(
        tool=tool,
        began=began,
        seed=0,
        machine={},
        servers={},
        models={},
        settings={},
        questions=[],
        levels=[],
        turns=[],
        foreign=list(foreign),
    )


if __name__ == "__main__":
    sys.stdout.write(schema())
