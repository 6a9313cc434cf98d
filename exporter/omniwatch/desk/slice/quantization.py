"""Renumber the experts that a quantiser's settings name: lists of modules, and patterns over their names. Pure."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, NamedTuple

from omniwatch.desk.slice import SliceError
from omniwatch.desk.slice.keep_file import Keep
from omniwatch.desk.slice.source import Source

KEYS = ("quantization_config", "compression_config")
FILES = ("quantize_config.json", "quant_config.json", "quantization_config.json")
"""Files beside the weights in which quantisers repeat their settings."""

_MODULE = re.compile(r"(thinker|talker)\.model\.layers\.(0|[1-9]\d*)\.mlp\.experts\.(0|[1-9]\d*)(\..+)?")
_NUMBERED = re.compile(r"experts\\?\.\(?\d")
_MARKS = ("re:", "+:", "-:")
"""What a pattern begins with: compressed-tensors, GPTQModel."""
_RESTS = ("", ".gate_proj", ".up_proj", ".down_proj")
"""The modules of one expert: all of it, and its projections."""
_SPECIAL = re.compile(r"[\\\[\](){}*+?|^$]")


class Module(NamedTuple):
    """A module of one expert: where it is, its name, and its name in the cut model; "" where its expert is dropped."""

    part: str
    layer: int
    rest: str
    name: str
    renamed: str


class Renumbering:
    """What the cut makes of the modules' names."""

    def __init__(self, source: Source, keep: Keep) -> None:
        self._keep = keep
        self._source = source
        self._modules: list[Module] | None = None

    def settings(self, found: Any, where: str) -> Any:
        """Return a quantiser's settings for the cut model. Raises SliceError for an entry that is not understood."""
        if isinstance(found, dict):
            out = {}
            for key, value in found.items():
                for renamed in self._entry(key, where):
                    out[renamed] = self.settings(value, f"{where}.{key[:60]}")
            return out
        if isinstance(found, list):
            return [
                each
                for value in found
                for each in (
                    self._entry(value, where) if isinstance(value, str) else [self.settings(value, where)]
                )
            ]
        if isinstance(found, str) and _NUMBERED.search(found):
            raise SliceError(
                f'{where}: "{found[:100]}" names an expert by its number, in a way not known here'
            )
        return found

    def _entry(self, text: str, where: str) -> list[str]:
        """The entries of the cut model in the place of one entry."""
        if "experts" not in text and not text.startswith(_MARKS):
            return [text]
        if not text.startswith(_MARKS) and not _SPECIAL.search(text):
            return self._literal(text, where)
        return self._pattern(text, where)

    def _literal(self, text: str, where: str) -> list[str]:
        found = _MODULE.fullmatch(text)
        if found is None:
            if _NUMBERED.search(text):
                raise SliceError(
                    f'{where}: "{text[:100]}" names an expert by its number, but not where it is'
                )
            return [text]
        renamed = self._renamed(found[1], int(found[2]), int(found[3]), found[4] or "")
        return [renamed] if renamed else []

    def _pattern(self, text: str, where: str) -> list[str]:
        """A pattern that takes all experts of a layer alike stays; one that does not becomes the names that it took."""
        mark = (
            text[: len(_MARKS[0])] if text.startswith("re:") else text[:2] if text.startswith(_MARKS) else ""
        )
        try:
            pattern = re.compile(text.removeprefix(mark))
        except re.error as error:
            raise SliceError(f'{where}: "{text[:100]}": not a pattern: {error}') from error
        # Readers differ in where a pattern may begin. One that takes all experts alike does so for all of them.
        hits = [module for module in self._experts() if pattern.match(module.name)]
        found = [module for module in self._experts() if pattern.search(module.name)]
        if self._alike(hits) and self._alike(found):
            return [text]
        others = (tensor.name.rpartition(".")[0] for tensor in self._source.weights.tensors)
        if hits != found or any(pattern.search(name) for name in others if not _MODULE.fullmatch(name)):
            raise SliceError(
                f'{where}: "{text[:100]}" takes some experts of a layer, and what else is not clear'
            )
        return [f"{mark}^{re.escape(module.renamed)}$" for module in hits if module.renamed]

    def _alike(self, hits: list[Module]) -> bool:
        """Tell whether each layer's experts are all among the hits, or none of them, projection by projection."""
        taken = Counter((module.part, module.layer, module.rest) for module in hits)
        return all(count == self._source.parts[part].experts for (part, _, _), count in taken.items())

    def _experts(self) -> list[Module]:
        if self._modules is None:
            self._modules = [
                Module(
                    part,
                    layer,
                    rest,
                    _name(part, layer, number, rest),
                    self._renamed(part, layer, number, rest),
                )
                for part, found in self._source.parts.items()
                for layer in found.layers
                for number in range(found.experts)
                for rest in _RESTS
            ]
        return self._modules

    def _renamed(self, part: str, layer: int, number: int, rest: str) -> str:
        found = self._source.parts.get(part)
        if found is None or layer not in found.layers:
            return _name(part, layer, number, rest)
        kept = self._keep.numbers(part, layer)
        if kept is None:
            return _name(part, layer, number, rest)
        return _name(part, layer, kept.index(number), rest) if number in kept else ""


def _name(part: str, layer: int, number: int, rest: str) -> str:
    return f"{part}.model.layers.{layer}.mlp.experts.{number}{rest}"
