"""Read the YAML of a file that a user names: bounded in size, depth and aliases, and each fault is one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from omniwatch.system import user_file

MAX_BYTES = 8 << 20
MAX_DEPTH = 100
"""Mappings and lists in one another, aliases followed."""
MAX_NODES = 2_000_000
"""Values in all, those of an alias each time that it stands there."""
MAX_SAID = 200
_OF_VALUES = (ValueError, LookupError, AttributeError, OverflowError)
"""PyYAML's own, for what looks like a date or a number and is none: 2026-02-30, 0b_, !!int ""."""
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where there is one: ten thousand devices in a second, not ten."""


class YamlError(ValueError):
    """What is wrong, and in which line (0 where that is not known). Of the file's values it says nothing: one may be a secret."""

    def __init__(self, problem: str, line: int = 0) -> None:
        said = "".join(sign if sign.isprintable() else " " for sign in problem)[:MAX_SAID]
        super().__init__(f"line {line}: {said}" if line else said)
        self.line = line


def load(path: Path, *, unique: bool = False) -> Any:
    """Return what a file holds. Raises OSError and YamlError."""
    return parse(user_file.read(path, MAX_BYTES), unique=unique)


def parse(content: str | bytes, *, unique: bool = False) -> Any:
    """Return what a document holds; with `unique` a key that a mapping has twice is an error, else its last value counts.

    Raises YamlError.
    """
    try:
        text = content if isinstance(content, str) else content.decode()
        _measure(text)
        try:
            return yaml.load(text, Loader=_UNIQUE if unique else _LOADER)
        except _OF_VALUES:
            # Once more, slower, to know the line.
            return yaml.load(text, Loader=_EXPLAINING)
    except UnicodeDecodeError as error:
        raise YamlError(f"not UTF-8: {error.reason}") from error
    except yaml.MarkedYAMLError as error:
        # libyaml takes what is missing at the end for one of a line after the last.
        line = min(_line(error.problem_mark), len(text.splitlines()))
        raise YamlError(str(error.problem), line) from error
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise YamlError(f"not YAML: {' '.join(str(error).split())}") from error


def _measure(text: str) -> None:
    """Raise YamlError for what is nested too deep or is too much once its aliases are followed."""
    # Of each mapping and list that is open: its anchor, and how many values and how deep it is so far.
    opened: list[tuple[str | None, list[int]]] = [(None, [0, 0])]
    anchors: dict[str, tuple[int, int]] = {}
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, [1, 1]))
            size, depth = 0, 0
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, (size, depth) = opened.pop()
            if anchor:
                anchors[anchor] = size, depth
            depth += 1
        elif isinstance(event, yaml.ScalarEvent):
            event.value.encode()  # PyYAML's own parser lets half a surrogate pair pass
            size, depth = 1, 1
            if event.anchor:
                anchors[event.anchor] = 1, 0
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in opened):
                raise YamlError("an alias of what it is in itself", _line(event.start_mark))
            size, depth = anchors.get(str(event.anchor), (0, 0))
            depth += 1
        else:
            continue
        held = opened[-1][1]
        held[0] += size
        held[1] = max(held[1], depth)
        if len(opened) - 1 + depth > MAX_DEPTH:
            raise YamlError(f"nested more than {MAX_DEPTH} levels deep", _line(event.start_mark))
        if held[0] > MAX_NODES:
            raise YamlError(f"more than {MAX_NODES} values, aliases followed", _line(event.start_mark))


def _line(mark: Any) -> int:
    return mark.line + 1 if mark else 0


def _construct_object(loader: Any, node: Any, deep: bool = False) -> Any:
    try:
        return _LOADER.construct_object(loader, node, deep)
    except _OF_VALUES as error:
        raise yaml.constructor.ConstructorError(
            None,
            None,
            "a value cannot be read; text that looks like a date or a number wants quotes",
            node.start_mark,
        ) from error


def _mapping(loader: Any, node: Any, deep: bool = False) -> Any:
    keys = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in keys:
                raise yaml.constructor.ConstructorError(
                    None, None, f'"{key.value}" is there twice', key.start_mark
                )
            keys.add(key.value)
    return _LOADER.construct_mapping(loader, node, deep)


_EXPLAINING: Any = type("_Explaining", (_LOADER,), {"construct_object": _construct_object})
_UNIQUE: Any = type("_Unique", (_LOADER,), {"construct_mapping": _mapping})
