"""Draw a sheet and write it to a file."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from matplotlib import style
from matplotlib.figure import Figure

from omniwatch.bundle.panels import COLUMNS
from omniwatch.desk import plotting
from omniwatch.desk.draw.canvas import Box, Canvas, colour, width, wrapped
from omniwatch.desk.draw.charts import draw_chart
from omniwatch.desk.draw.model import Chart, Frame, Grid, Lanes, Nothing, Place, Sheet, Tiles
from omniwatch.desk.draw.stat_panels import draw_grid, draw_lanes, draw_nothing, draw_tiles
from omniwatch.desk.draw.svg import small
from omniwatch.desk.plotting import FAINT, INK
from omniwatch.system import atomic_write

COLUMN, ROW, GAP, MARGIN = 45.0, 29.0, 6.0, 12.0
"""Of the grid, in points."""
HEAD = 46.0
ACROSS = COLUMN * COLUMNS + 2 * MARGIN
PAGE, CARD, EDGE = "#F4F5F5", "#FFFFFF", "#DCDCDC"
TITLE, WORDS, WORD_LINE = 9.5, 7.0, 9.0
FONTS = ("DejaVu Sans", "Verdana", "Arial")
"""Of about the same width, where a reader's machine has not the first."""
STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": list(FONTS),
}
"""Text stays text: it can be searched, and takes a tenth of what its outlines do."""


def write(sheet: Sheet, path: Path) -> None:
    """Draw a sheet into an SVG or PNG file, the same bytes for the same sheet. Raises OSError."""
    with style.context(plotting.STYLE | STYLE, after_reset=True):
        figure = Figure(facecolor=PAGE)
        draw(sheet, figure)
        picture = plotting.encoded(figure, path)
    atomic_write.replace(
        path, small(picture, [*FONTS, "sans-serif"]) if path.suffix.lower() == ".svg" else picture
    )


def draw(sheet: Sheet, figure: Figure) -> None:
    """Put every panel at its place."""
    rows = max((frame.place.y + frame.place.h for frame in sheet.frames), default=1)
    canvas = Canvas(figure, ACROSS, HEAD + rows * ROW + MARGIN)
    _head(canvas, sheet)
    for title, y in sheet.headings:
        canvas.text(MARGIN + 3, HEAD + y * ROW + ROW / 2 + 6, title, 11, weight="bold")
    for frame in sheet.frames:
        _panel(canvas, frame, sheet)


def _head(canvas: Canvas, sheet: Sheet) -> None:
    canvas.text(MARGIN + 3, 20, sheet.title, 14, weight="bold")
    start, end = (datetime.fromtimestamp(t, timezone.utc) for t in sheet.window)
    until = end.strftime("%H:%M:%S" if start.date() == end.date() else "%Y-%m-%d %H:%M:%S")
    times = f"{start:%Y-%m-%d %H:%M:%S} to {until} UTC"
    right = ACROSS - MARGIN - 3
    canvas.text(right, 20, times, 8.5, ha="right", color=FAINT)
    for name, shade, marks in reversed(sheet.marks):
        if marks:
            canvas.text(right, 36, name, 8, ha="right")
            right -= width(name, 8) + 8
            canvas.line([right, right], [28, 38], color=colour(shade), linewidth=1.2, linestyle=(0, (2, 1)))
            right -= 8
    (line,) = wrapped(sheet.description, 9, right - MARGIN - 10, 1) or [""]
    canvas.text(MARGIN + 3, 36, line, 9, color="#666666")


def _panel(canvas: Canvas, frame: Frame, sheet: Sheet) -> None:
    box = _box(frame.place)
    canvas.card(box, CARD, EDGE)
    inner = box.inside(9, 0, 9, 7)
    canvas.text(inner.x, inner.y + 15, frame.title, TITLE, weight="bold", color=INK)
    lines = wrapped(frame.description, WORDS, inner.w, 3)
    for number, line in enumerate(lines):
        canvas.text(inner.x, inner.y + 26 + number * WORD_LINE, line, WORDS, color="#777777")
    body = inner.inside(0, 22 + WORD_LINE * len(lines), 0, 0)
    shown = frame.shown
    if isinstance(shown, Chart):
        draw_chart(canvas, body, shown, sheet.window, [mark for _, _, marks in sheet.marks for mark in marks])
    elif isinstance(shown, Tiles):
        draw_tiles(canvas, body, shown)
    elif isinstance(shown, Lanes):
        draw_lanes(canvas, body, shown, sheet.window)
    elif isinstance(shown, Grid):
        draw_grid(canvas, body, shown)
    elif isinstance(shown, Nothing):
        draw_nothing(canvas, body, shown)


def _box(place: Place) -> Box:
    return Box(
        MARGIN + place.x * COLUMN + GAP / 2,
        HEAD + place.y * ROW + GAP / 2,
        place.w * COLUMN - GAP,
        place.h * ROW - GAP,
    )
