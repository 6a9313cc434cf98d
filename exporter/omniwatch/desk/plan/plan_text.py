"""Put a plan into words: a table of components, what comes on top, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from omniwatch.desk.plan.ladder import Rung, Slice
from omniwatch.desk.plan.memory import Result
from omniwatch.desk.plan.planning import Plan

GB = 1e9


def gb(count: float) -> str:
    """Write bytes as GB of 10^9."""
    return f"{count / GB:.2f}"


def verdict(result: Result) -> str:
    """Say in one line whether it fits, and by how much."""
    spare = abs(result.spare_bytes) / GB
    says = f"fits, {spare:.1f} GB spare" if result.fits else f"does not fit, {spare:.1f} GB too much"
    return f"{result.name} on {result.device.name}: {says}"


def as_text(plan: Plan) -> Iterator[str]:
    """Write the whole plan, a line at a time."""
    result = plan.result
    yield verdict(result)
    yield ""
    rows = [("component", "parameters", "type", "GB")]
    rows += [(part.words, f"{part.parameters:,}", part.type, gb(part.bytes)) for part in result.components]
    rows.append(("weights", f"{result.parameters:,}", "", gb(result.weights_bytes)))
    per_token = sum(stage.kv_bytes_per_token for stage in result.stages)
    streams = f"{result.streams} stream{'s' if result.streams > 1 else ''}"
    rows.append(
        (
            f"KV cache: {streams} of {result.max_model_len} tokens",
            f"{per_token:,} B a token",
            result.kv_type,
            gb(result.kv_bytes),
        )
    )
    measured = all(stage.measured for stage in result.stages)
    source = (
        "measured"
        if measured
        else "assumed"
        if not any(s.measured for s in result.stages)
        else "partly measured"
    )
    rows.append((f"CUDA contexts, activations ({source})", "", "", gb(result.overhead_bytes)))
    rows.append(("needed", "", "", gb(result.needed_bytes)))
    rows.append(("Linux, sidecar and the rest (assumed)", "", "", gb(result.system_bytes)))
    rows.append((f"memory of {result.device.name}", "", "", gb(result.device.memory_bytes)))
    yield from table(rows)
    yield ""
    yield f"streams of {result.max_model_len} tokens that fit: {result.streams_that_fit}"
    if plan.change:
        yield (
            f"cheapest change that fits: {' '.join(plan.change.options)} ({plan.change.words}): "
            f"{gb(plan.change.needed_bytes)} GB, {gb(plan.change.spare_bytes)} spare"
        )
    elif not result.fits:
        yield "no change known here makes it fit"
    if plan.bound:
        bound = plan.bound
        yield (
            f"upper bound by memory bandwidth ({bound.bandwidth_bytes_s / GB:g} GB/s), one stream at a time: "
            f"{bound.thinker_tokens_s:.0f} thinker tokens/s ({gb(bound.thinker_token_bytes)} GB each)"
        )
        if bound.frame_bytes:
            yield (
                f"  {bound.frames_s:.0f} codec frames/s ({gb(bound.frame_bytes)} GB each), {bound.streams:.1f} times "
                "the 12.5 a second that one voice needs"
            )
    for note in result.notes:
        yield f"note: {note}"


def ladder_text(rungs: Iterable[Rung], slices: Iterable[Slice]) -> Iterator[str]:
    """Write the steps one under the other, then the weights by experts kept."""
    rows = [("step", "weights GB", "KV GB", "needed GB", "saves GB", "fits", "streams")]
    rows += [
        (
            rung.words,
            gb(rung.weights_bytes),
            gb(rung.kv_bytes),
            gb(rung.needed_bytes),
            gb(rung.saved_bytes),
            "yes" if rung.fits else "no",
            str(rung.streams_that_fit),
        )
        for rung in rungs
    ]
    yield from table(rows, left=1)
    found = list(slices)
    if not found:
        return
    yield ""
    yield "weights in GB by experts kept a layer, in thinker and talker"
    head = ("experts", "parameters", *found[0].bytes)
    yield from table(
        [head, *((str(row.experts), f"{row.parameters:,}", *map(gb, row.bytes.values())) for row in found)],
        left=0,
    )


def table(rows: Sequence[Sequence[str]], left: int = 1) -> Iterator[str]:
    """Align columns: the first `left` to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
