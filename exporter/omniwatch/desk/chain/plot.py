"""Draw a result: first audio by chain and concurrency, where the time goes, memory."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omniwatch.desk.chain import ChainError, Result
from omniwatch.desk.chain.figures import QUANTITIES, Cell, cells
from omniwatch.system import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("svg", "png", "pdf")
COLOURS = {"native": "#1f77b4", "cascade": "#ff7f0e"}
_FIRST_AUDIO = next(quantity for quantity in QUANTITIES if quantity.name == "first_audio_s")


def draw(result: Result, path: Path) -> None:
    """Write the picture, its format by the file's ending. Raises ChainError, OSError, ImportError without matplotlib."""
    kind = path.suffix.lstrip(".").lower()
    if kind not in FORMATS:
        raise ChainError(f"{path}: expected a file name that ends in .svg, .png or .pdf")
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    found = cells(result)
    with rc_context({"svg.hashsalt": "omniwatch", "svg.fonttype": "path"}):
        figure = Figure(figsize=(11, 4), layout="constrained")
        first, steps, memory = figure.subplots(1, 3)
        _first_audio(first, found)
        _steps(steps, found)
        _memory(memory, result)
        metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {}
        with atomic_write.replacing(path) as file:
            figure.savefig(file, format=kind, metadata=metadata)


def _first_audio(axes: Axes, found: list[Cell]) -> None:
    for place, cell in enumerate(found):
        values = [v for v in cell.values(_FIRST_AUDIO) if math.isfinite(v)]
        if values:
            axes.boxplot([values], positions=[place], whis=(1, 99), widths=0.6, showfliers=True)
    axes.set_xticks(range(len(found)), [f"{cell.chain}\nx{cell.concurrency}" for cell in found])
    axes.set_ylim(bottom=0)
    axes.set_title("First audio (s): P1, quartiles, P99")


def _steps(axes: Axes, found: list[Cell]) -> None:
    names = sorted({name for cell in found for name, _ in cell.steps()})
    for place, cell in enumerate(found):
        top = 0.0
        for name, value in cell.steps():
            axes.bar(place, value, bottom=top, color=f"C{names.index(name)}", label=name)
            top += value
    handles = {text: handle for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    if handles:
        axes.legend(handles.values(), handles.keys(), fontsize="small")
    axes.set_xticks(range(len(found)), [f"{cell.chain}\nx{cell.concurrency}" for cell in found])
    axes.set_title("Where it goes (medians, s)")


def _memory(axes: Axes, result: Result) -> None:
    for place, one in enumerate(result.memory):
        for value, shade in ((one.held_bytes, 0.5), (one.needed_bytes, 1.0)):
            if value is not None:
                axes.bar(place, value / 1e9, color=COLOURS[one.chain], alpha=shade)
    axes.set_xticks(range(len(result.memory)), [f"{one.chain}\n{one.watched}" for one in result.memory])
    axes.set_title("Memory (GB): held; dark: needed" if result.memory else "Memory: not watched")
