"""Make matplotlib's SVG smaller, with no visible difference."""

from __future__ import annotations

import re
from collections.abc import Sequence

_UNSAID = re.compile(rb' transform="rotate\(-0 [^"]*"|text-anchor: start; |font-family: [^;"]*; ')
_PATH = re.compile(rb' d="([^"]*)"')
_POLYLINE = re.compile(rb"(?:[ML] -?[\d.]+ -?[\d.]+\s*|z\s*)+")
_STEP = re.compile(rb"([MLz])(?: (-?[\d.]+) (-?[\d.]+))?")


def small(svg: bytes, fonts: Sequence[str]) -> bytes:
    """Cut paths to tenths of a point, each step from the one before, and say the fonts once for all texts."""
    svg = _UNSAID.sub(b"", svg).replace(b"<svg ", f'<svg font-family="{", ".join(fonts)}" '.encode(), 1)
    return _PATH.sub(lambda found: b' d="' + _steps(found[1]) + b'"', svg)


def _steps(path: bytes) -> bytes:
    """Write a path of straight lines by its differences; any other stays as it is."""
    if not _POLYLINE.fullmatch(path):
        return path
    written: list[str] = []
    x = y = 0
    for command, across, down in _STEP.findall(path):
        if command == b"z":
            written.append("z")
            continue
        # Whole tenths: what is rounded away at one point is not carried on to the next.
        to_x, to_y = round(float(across) * 10), round(float(down) * 10)
        if command == b"M":
            written.append(f"M{to_x / 10:g} {to_y / 10:g}")
        else:
            written.append(f"l{(to_x - x) / 10:g} {(to_y - y) / 10:g}")
        x, y = to_x, to_y
    return "".join(written).encode()
