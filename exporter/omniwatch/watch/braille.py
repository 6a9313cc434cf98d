"""Draw a curve with characters: two samples wide and four high each in braille, one by one where there is no Unicode. Pure."""

from __future__ import annotations

from collections.abc import Sequence

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille character, by row and column (Unicode 16, chapter 21.1)."""


def drawn(
    values: Sequence[float | None],
    thresholds: Sequence[float],
    low: float,
    high: float,
    *,
    width: int,
    height: int,
    plain: bool = False,
) -> list[str]:
    """Return `height` lines of `width` characters: of each place's samples the one farthest from 0. A gap stays empty.

    Thresholds are dotted. `plain` takes ASCII only.
    """
    across, down = (1, 1) if plain else (2, 4)
    columns, rows = width * across, height * down
    dots = [[False] * columns for _ in range(rows)]

    def row(value: float) -> int:
        share = (min(max(value, low), high) - low) / (high - low)
        return round((1 - share) * (rows - 1))

    for threshold in thresholds:
        for column in range(0, columns, 4 if plain else 6):
            dots[row(threshold)][column] = True
    for column in range(columns):
        of_here = values[
            column * len(values) // columns : max(
                (column + 1) * len(values) // columns, column * len(values) // columns + 1
            )
        ]
        known = [value for value in of_here if value is not None]
        if known:
            dots[row(max(known, key=abs))][column] = True
    if plain:
        return ["".join("*" if dot else " " for dot in line) for line in dots]
    return [
        "".join(
            chr(
                0x2800
                + sum(DOTS[y][x] for y in range(4) for x in range(2) if dots[4 * line + y][2 * character + x])
            )
            for character in range(width)
        )
        for line in range(height)
    ]
