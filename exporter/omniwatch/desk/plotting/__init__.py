"""What every picture shares: its colours and style, where its ticks stand, and the files it can be written to."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omniwatch.system import needed
from omniwatch.system.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png")
# Okabe and Ito's palette, told apart by colour-blind readers too; its vermilion and orange are kept for the rules.
STREAM_COLOURS = ("#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#000000")
STATE_COLOURS = {"pending": "#E69F00", "firing": "#D55E00"}
LABEL_COLOURS = {"pending": "#8A5F00", "firing": "#A34700"}
INK, FAINT = "#333333", "#8A8A8A"
STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": "#BBBBBB",
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.5,
    "xtick.color": "#666666",
    "ytick.color": "#666666",
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.0,
    "lines.linewidth": 1.2,
    "svg.hashsalt": "omniwatch",
}


class PlotError(UserError):
    """The picture cannot be made."""


def check_target(path: Path) -> None:
    """Raise PlotError unless a picture can be written to `path`: before the work rather than after it."""
    if path.suffix.lower() not in SUFFIXES:
        raise PlotError(f"{path}: a plot ends in {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise PlotError(f"{path}: no such directory: {path.parent}")
    if not needed.is_there("matplotlib"):
        raise PlotError("a picture needs matplotlib: pip install 'omniwatch[plot]'")


def encoded(figure: Figure, path: Path) -> bytes:
    """Return a figure as the kind of file that `path` names, without a date in it."""
    kind = path.suffix[1:].lower()
    picture = io.BytesIO()
    figure.savefig(picture, format=kind, dpi=160, metadata={"Date" if kind == "svg" else "Software": None})
    return picture.getvalue()


def tick_s(length_s: float) -> float:
    """Return a distance of ticks in seconds that reads well as minutes, for about eight of them."""
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400)
    return next((step for step in steps if length_s / step <= 10), 86400)
