"""What a cut saves, part by part, in the components that `omniwatch plan` knows. Pure."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from omniwatch.desk.plan.components import COMPONENTS, component_of
from omniwatch.desk.slice.layout import OutFile
from omniwatch.desk.slice.source import Source


class Size(NamedTuple):
    """A component's bytes before and after."""

    words: str
    before: int
    after: int


def sizes(source: Source, found: list[OutFile]) -> list[Size]:
    """Add up the tensors of each component, and of all, last."""
    before: Counter[str] = Counter()
    after: Counter[str] = Counter()
    for tensor in source.weights.tensors:
        before[component_of(tensor.name)] += tensor.size
    for file in found:
        for cut in file.tensors:
            after[component_of(cut.name)] += cut.size
    rows = [Size(words, before[name], after[name]) for name, (words, _) in COMPONENTS.items() if before[name]]
    return [*rows, Size("weights", before.total(), after.total())]
