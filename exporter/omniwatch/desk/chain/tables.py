"""Put a result into a table, for a terminal and as Markdown. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from omniwatch.desk.chain import Foreign, Result
from omniwatch.desk.chain.figures import QUANTITIES, Cell, cells
from omniwatch.desk.chain.statistics import PERCENTILES, Estimate, fewest, fewest_closed, share_interval
from omniwatch.desk.probe.words import word_error_rate

UNKNOWN = "-"
Table = list[list[str]]


def tables(result: Result) -> list[tuple[str, Table]]:
    """Return every table of the report with its heading: the first row holds the columns' names."""
    found = cells(result)
    shown: list[tuple[str, Table]] = []
    if found or result.foreign:
        shown.append(("What a client sees", _main(found, result.foreign)))
    steps = [
        [f"{c.chain} x{c.concurrency}", name, seconds(value)] for c in found for name, value in c.steps()
    ]
    if steps:
        shown.append(("Where the time to the first audio goes (medians)", [["chain", "step", "s"], *steps]))
    memory = _memory(result)
    if len(memory) > 1:
        shown.append(("Memory", memory))
    energy = [
        [d.chain, rail, f"{joules:.1f}", f"{joules / d.turns:.2f}" if d.turns else UNKNOWN]
        for d in result.devices
        for rail, joules in sorted(d.rails_joules.items())
    ]
    if energy:
        shown.append(
            ("Energy of the rails (not of the board)", [["chain", "rail", "J", "J a turn"], *energy])
        )
    return shown


def notes(result: Result) -> list[str]:
    """Return what a reader of the tables must know, a line each."""
    found = cells(result)
    lines = [
        "Times count from the question's last byte sent. [ ] is a 95 % interval by order statistics; "
        '"..." is an open end: too few turns to bound it.'
    ]
    interrupt_s = result.settings.get("interrupt_s")
    if interrupt_s is not None:
        lines.append(
            f"Every other answer was broken off {interrupt_s:g} s after its first speech, and the next question asked at once. "
            '"first audio" is of the turns that follow no interruption; what is counted to an answer\'s end, of those not broken off.'
        )
    smallest = min((len(cell.turns) for cell in found), default=0)
    if found and smallest < fewest_closed(99):
        lines.append(
            f"P90: none below {fewest(90)} turns. P99: none below {fewest(99)} turns; below {fewest_closed(99)} its upper end is open. "
            f"The smallest column has {smallest}."
        )
    for cell in found:
        if cell.failed:
            what = ", ".join(f"{name} {count}" for name, count in cell.outcomes.items())
            lines.append(
                f"{cell.chain} x{cell.concurrency}: {cell.failed} of {len(cell.turns)} turns failed ({what}). "
                'They count as never answered where the figure is "first audio" or "end".'
            )
    said = {q.name: q.text for q in result.questions if q.text}
    errors = words = 0
    for turn in result.turns:
        if turn.transcript is not None and turn.question in said:
            wrong, spoken = word_error_rate(said[turn.question] or "", turn.transcript)
            errors, words = errors + wrong, words + spoken
    if words:
        lines.append(
            f"ASR: {errors} of {words} words wrong ({errors / words:.1%}) against the questions' texts."
        )
    for one in result.memory:
        if one.note:
            lines.append(f"{one.chain}, {one.watched}: {one.note}.")
    lines += [f"{one.name}: not known: {'; '.join(one.unknown)}." for one in result.foreign if one.unknown]
    return lines


def _main(found: Sequence[Cell], foreign: Sequence[Foreign]) -> Table:
    head = ["figure", "", *(f"{c.chain} x{c.concurrency}" for c in found), *(f.name for f in foreign)]
    table = [head]
    failed = [f"{c.failed} of {len(c.turns)} {_share(c.failed, len(c.turns))}" for c in found]
    others = [UNKNOWN if f.failed is None else f"{f.failed} of {f.completed + f.failed}" for f in foreign]
    table.append(["turns failed", "", *failed, *others])
    for quantity in QUANTITIES:
        for percent in PERCENTILES:
            own = [_cell(c.estimate(quantity, percent)) if c.values(quantity) else UNKNOWN for c in found]
            their = [f.figures.get(f"{quantity.name} p{percent}") for f in foreign]
            cells_ = [*own, *(UNKNOWN if v is None else seconds(v) for v in their)]
            if any(cell != UNKNOWN and not cell.startswith("n=") for cell in cells_):
                table.append([quantity.words, f"P{percent}", *cells_])
    for place, words in (
        (0, "audio seconds a second, all clients"),
        (1, "text tokens a second, all clients"),
    ):
        name = ("audio_s_per_s", "tokens_per_s_all")[place]
        own = [UNKNOWN if (v := c.per_second()[place]) is None else seconds(v) for c in found]
        cells_ = [*own, *(UNKNOWN if (v := f.figures.get(name)) is None else seconds(v) for f in foreign)]
        if any(cell != UNKNOWN for cell in cells_):
            table.append([words, "", *cells_])
    return table


def _share(hits: int, n: int) -> str:
    low, high = share_interval(hits, n)
    return f"[{low:.1%}, {high:.1%}]"


def _cell(found: Estimate) -> str:
    if found.value is None:
        return f"n={found.n}: too few"
    low = "..." if found.low is None else seconds(found.low)
    high = "..." if found.high is None else seconds(found.high)
    return f"{seconds(found.value)} [{low}, {high}]"


def seconds(value: float) -> str:
    """Return a figure with three significant digits or milliseconds, whichever is shorter."""
    if math.isinf(value):
        return "never"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def _memory(result: Result) -> Table:
    table = [["chain", "what", "before", "held", "needed", "how"]]
    for one in result.memory:
        sizes = [one.before_bytes, one.held_bytes, one.needed_bytes]
        table.append([one.chain, one.watched, *map(size, sizes), one.how])
    for device in result.devices:
        if device.gpu_held_bytes is not None:
            sizes = [device.gpu_before_bytes, device.gpu_held_bytes, None]
            table.append([device.chain, "GPU", *map(size, sizes), "all processes of the device"])
    return table


def size(value: int | None) -> str:
    """Return bytes as MB or GB (powers of ten)."""
    if value is None:
        return UNKNOWN
    return f"{value / 1e9:.2f} GB" if value >= 1e9 else f"{value / 1e6:.0f} MB"


def columns(table: Table) -> str:
    """Return a table for a terminal, a line a row."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in table
    )


def terminal(result: Result) -> str:
    """Return the report for a terminal."""
    parts = []
    for heading, table in tables(result):
        parts.append("\n".join([heading, *(f"  {line}" for line in columns(table).splitlines())]))
    return "\n\n".join([*parts, "\n".join(notes(result))]) + "\n"


def markdown(result: Result) -> str:
    """Return the report as Markdown."""
    parts = []
    for heading, table in tables(result):
        lines = [_line(table[0]), _line(["---"] * len(table[0])), *map(_line, table[1:])]
        parts.append("\n".join([f"### {heading}", "", *lines]))
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in notes(result))]) + "\n"


def _line(row: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
