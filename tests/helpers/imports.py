"""What imports what in the package, read from its source: also imports in functions and those for types only."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from helpers.paths import CLONE
from rooms import room_of

PACKAGE = CLONE / "exporter" / "omniwatch"
Graph = dict[str, set[str]]


def _sources() -> dict[str, ast.Module]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_bytes())
    return found


def _named(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the module that each import names, and what it takes from it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not used here"
            for alias in node.names:
                yield node.module or "", alias.name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, ""


def of_modules() -> Graph:
    """Return, per module of the package, the modules it imports: the package's own by full name, others by their first."""
    sources = _sources()
    graph: Graph = {}
    for module, tree in sources.items():
        needs = graph[module] = set()
        for name, taken in _named(tree):
            inner = f"{name}.{taken}"
            if not name.startswith("omniwatch"):
                needs.add(name.partition(".")[0])
            elif inner in sources:
                needs.add(inner)
            else:
                assert name in sources, f"{module} imports {name}, which is not there"
                needs.add(name)
        needs.discard(module)
    return graph


def of_rooms(modules: Graph) -> Graph:
    """Return, per room (a folder, or a file at the root), the rooms it imports."""
    graph: Graph = {}
    for module, needs in modules.items():
        here = graph.setdefault(room_of(module), set())
        here |= {room_of(need) for need in needs if need.startswith("omniwatch.")} - {room_of(module)}
    return graph


def reached(modules: Graph, start: str) -> set[str]:
    """Return all that importing `start` needs, its packages' own files included."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting += modules.get(module, ())
            if module in modules and "." in module:
                waiting.append(module.rpartition(".")[0])
    return seen
