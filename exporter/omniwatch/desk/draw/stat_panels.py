"""Draw the other panels: single values, states over time, tables."""

from __future__ import annotations

import math

from omniwatch.desk.draw.canvas import Box, Canvas, colour, fitted, width
from omniwatch.desk.draw.charts import LINE, SMALL, clock_text
from omniwatch.desk.draw.model import Cell, Grid, Lanes, Nothing, Tiles
from omniwatch.desk.draw.window import Window
from omniwatch.desk.plotting import FAINT, INK, tick_s

LARGEST = 26.0
THICKEST = 48.0
ROW_LINE = "#EEEEEE"


def draw_nothing(canvas: Canvas, box: Box, nothing: Nothing) -> None:
    """Say in the middle of the box that there is nothing."""
    canvas.text(
        box.x + box.w / 2, box.y + box.h / 2, nothing.reason, 11, color=FAINT, ha="center", va="center"
    )


def draw_tiles(canvas: Canvas, box: Box, tiles: Tiles) -> None:
    """Write values as large as there is room, each below its name."""
    count = len(tiles.tiles)
    across = min(count, max(1, round(math.sqrt(count * box.w / box.h / 1.6))))
    down = math.ceil(count / across)
    w, h = box.w / across, box.h / down
    widest = max(width(tile.text, 1.0, "bold") for tile in tiles.tiles)
    size = min(LARGEST, 0.45 * h, (w - 8) / widest)
    for number, tile in enumerate(tiles.tiles):
        middle = box.x + (number % across + 0.5) * w
        y = box.y + (number // across + 0.5) * h
        canvas.text(middle, y - 0.36 * size, fitted(tile.name, SMALL, w - 6), SMALL, ha="center")
        canvas.text(
            middle, y + 0.7 * size, tile.text, size, ha="center", color=colour(tile.colour), weight="bold"
        )


def draw_lanes(canvas: Canvas, box: Box, lanes: Lanes, window: Window) -> None:
    """Draw a bar for each state, one series below the other, over an axis of time."""
    names = [fitted(lane.name, SMALL, box.w / 3) for lane in lanes.lanes]
    left = max(width(name, SMALL) for name in names) + 6
    field = box.inside(left, 2, 4, LINE + 4)
    scale = field.w / window.length_s
    height = min(field.h / len(lanes.lanes), THICKEST)
    for number, lane in enumerate(lanes.lanes):
        y = field.y + number * height
        canvas.text(field.x - 5, y + height / 2, names[number], SMALL, ha="right", va="center")
        for span in lane.spans:
            x = field.x + max(span.start - window.start, 0) * scale
            w = (min(span.end, window.end) - max(span.start, window.start)) * scale
            canvas.bar(Box(x, y + 0.06 * height, w, 0.88 * height), colour(span.colour), 0.75)
            if width(span.text, SMALL) + 6 < w and height > LINE - 1:
                canvas.text(
                    x + 4, y + height / 2, span.text, SMALL, va="center", color="white", weight="bold"
                )
    every = tick_s(window.length_s * 1.2)
    base = field.y + height * len(lanes.lanes)
    for step in range(math.ceil(window.start / every), math.floor(window.end / every) + 1):
        x = field.x + (step * every - window.start) * scale
        canvas.text(
            x, base + LINE, clock_text(step * every, window.length_s), SMALL, ha="center", color="#666666"
        )


def draw_grid(canvas: Canvas, box: Box, grid: Grid) -> None:
    """Write a table; rows that do not fit are counted in its last line."""
    line = 18.0
    fit = int(box.h // line) - 1
    rows = grid.rows if len(grid.rows) <= fit else grid.rows[: fit - 1]
    needed = [
        max(width(cell.text, 8.0) for cell in (Cell(head), *(row[n] for row in rows))) + 16
        for n, head in enumerate(grid.heads)
    ]
    spare = max(box.w - sum(needed), 0) / len(needed)
    edges = [box.x + sum(needed[:n]) + n * spare for n in range(len(needed))]
    for x, head in zip(edges, grid.heads, strict=True):
        canvas.text(x + 4, box.y + line - 6, head, 8.0, weight="bold", color="#1F60A8")
    for number, row in enumerate(rows, 1):
        y = box.y + number * line
        canvas.line([box.x, box.x + box.w], [y, y], color=ROW_LINE, linewidth=0.6)
        for x, cell in zip(edges, row, strict=True):
            canvas.text(
                x + 4, y + line - 6, cell.text, 8.0, color=colour(cell.colour) if cell.colour else INK
            )
    if len(rows) < len(grid.rows):
        y = box.y + (len(rows) + 1) * line
        canvas.text(box.x + 4, y + line - 6, f"… and {len(grid.rows) - len(rows)} more", 8.0, color=FAINT)
