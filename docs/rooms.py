"""Draw the package's rooms as the imports have them: who stands on whom, the lowest floor at the bottom."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from html import escape
from pathlib import Path

WIDTH, HEIGHT, GAP, FLOOR = 112, 26, 18, 74
STYLE = """
text { font: 13px sans-serif; text-anchor: middle; fill: #1f2933 }
text.floor { fill: #7b8794; font-size: 11px; text-anchor: start }
rect { fill: #eef2f7; stroke: #52606d; rx: 5 }
path { fill: none; stroke: #9aa5b1; stroke-width: 1 }
"""


def imports(package: Path) -> dict[str, set[str]]:
    """Return for each room the other rooms that its files import.

    A room is a folder, or a file at the root; inside `desk` it is a folder or a file there.
    """
    found: dict[str, set[str]] = {}
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package)
        if inside.parts[0] in ("_data", "__init__.py", "__main__.py"):
            continue
        room = _room(".".join((package.name, *inside.with_suffix("").parts)), package)
        if room == "desk/__init__":
            continue
        found.setdefault(room, set())
        for name in _imported(ast.parse(path.read_text(encoding="utf-8"))):
            other = _room(name, package)
            if other and other != room:
                found[room].add(other)
    return found


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(module: str) -> str:
    """Return the room of a module: the folder below the package, and inside `desk` the folder below that."""
    _, *inner = module.split(".")
    return "/".join(inner[: 2 if inner[:1] == ["desk"] else 1])


def _room(name: str, package: Path) -> str:
    """Return the room of what an import names, "" where it is none of the package's."""
    room = room_of(name)
    if name.partition(".")[0] != package.name or room in ("", "desk"):
        return ""
    place = package / room
    return room if place.is_dir() or place.with_suffix(".py").exists() else ""


def floors(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the rooms by floor, the ground first: each stands one above the highest that it imports.

    Rooms that import each other in a circle have no floor: they come last, together.
    """
    height: dict[str, int] = {}
    while len(height) < len(graph):
        ready = {room for room in graph if room not in height and graph[room] <= height.keys()}
        if not ready:
            break
        for room in ready:
            height[room] = 1 + max((height[other] for other in graph[room]), default=-1)
    levels: list[list[str]] = [[] for _ in range(1 + max(height.values(), default=-1))]
    for room in sorted(height):
        levels[height[room]].append(room)
    rest = sorted(graph.keys() - height.keys())
    return [*levels, rest] if rest else levels


def reduced(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the graph without the arrows that a longer way says as well."""

    def reach(room: str, seen: set[str]) -> set[str]:
        for other in graph[room] - seen:
            seen.add(other)
            reach(other, seen)
        return seen

    far = {room: reach(room, set()) for room in graph}
    return {
        room: {one for one in others if not any(one in far[other] for other in others - {one})}
        for room, others in graph.items()
    }


def _ordered(levels: list[list[str]], arrows: dict[str, set[str]]) -> list[list[str]]:
    """Order each floor by where the rooms it stands on are, so that arrows cross less."""
    place: dict[str, float] = {}
    ordered = []
    for level in levels:
        row = sorted(level, key=lambda room: (_centre(arrows[room], place), room))
        place |= {room: (i + 1) / (len(row) + 1) for i, room in enumerate(row)}
        ordered.append(row)
    return ordered


def _centre(rooms: set[str], place: dict[str, float]) -> float:
    placed = [place[room] for room in rooms if room in place]
    return sum(placed) / len(placed) if placed else 0.5


def picture(package: Path) -> str:
    """Return the picture as SVG. The same imports give the same bytes."""
    graph = imports(package)
    arrows = reduced(graph)
    levels = _ordered(floors(graph), arrows)
    wide = max(len(row) for row in levels)
    full = wide * (WIDTH + GAP) + GAP
    tall = len(levels) * FLOOR + GAP
    at: dict[str, tuple[float, float]] = {}
    for floor, row in enumerate(levels):
        start = (full - len(row) * (WIDTH + GAP) + GAP) / 2
        for i, room in enumerate(row):
            at[room] = (start + i * (WIDTH + GAP), tall - (floor + 1) * FLOOR + GAP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {full} {tall}" role="img" '
        f'aria-label="The rooms of the package; a line leads from a room down to one it imports">\n'
        f'<style>{STYLE}</style>\n<rect x="0" y="0" width="{full}" height="{tall}" '
        f'style="fill: #ffffff; stroke: none"/>\n'
    ]
    for room in sorted(arrows):
        for other in sorted(arrows[room]):
            (x0, y0), (x1, y1) = at[room], at[other]
            out.append(
                f'<path d="M{x0 + WIDTH / 2:g},{y0 + HEIGHT:g} C{x0 + WIDTH / 2:g},{y0 + HEIGHT + 22:g} '
                f'{x1 + WIDTH / 2:g},{y1 - 22:g} {x1 + WIDTH / 2:g},{y1:g}"/>\n'
            )
    for room, (x, y) in sorted(at.items()):
        out.append(
            f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}"/>'
            f'<text x="{x + WIDTH / 2:g}" y="{y + 17:g}">{escape(room)}</text>\n'
        )
    return "".join([*out, "</svg>\n"])
