"""Send questions through a part of the model layer by layer: one layer is in memory, the activations are files of a folder.

`PART.N.f32` is what goes into layer N: the states of all questions one after another, float32.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

from omniwatch.desk.slice.ranking import MODALITIES
from omniwatch.desk.slice.routing import Routing
from omniwatch.desk.slice.skeleton import Entry, Skeleton

SPEECH, PICTURE, TEXT = (MODALITIES.index(kind) for kind in ("speech", "picture", "text"))
Done = Callable[[int, Routing | None], None]
"""Is told of each layer that is through."""


class Place(NamedTuple):
    """Where a question's tokens are in the files, what each stands for, and what the layers need to know of them."""

    name: str
    begin: int
    end: int
    kinds: Any
    positions: Any
    deep: list[Any]
    seen: Any


class Flow:
    """All questions on their way through a part. `width` is of a state; `places` are those of all questions."""

    def __init__(self, folder: Path, part: str, width: int, places: Sequence[Place]) -> None:
        self._folder = folder
        self._part = part
        self._width = width
        self.places = places

    @classmethod
    def made(
        cls,
        folder: Path,
        part: str,
        width: int,
        entries: Sequence[tuple[str, Entry, Any]],
    ) -> Flow:
        """Write the first layer's input: a name, what goes in, and the kinds of the tokens, for each question. Raises OSError."""
        places, at = [], 0
        for name, entry, kinds in entries:
            end = at + len(entry.embeds)
            deep = [held.float().cpu() for held in entry.deep]
            seen = None if entry.seen is None else entry.seen.cpu()
            places.append(Place(name, at, end, kinds.cpu(), entry.positions.cpu(), deep, seen))
            at = end
        flow = cls(folder, part, width, places)
        states = flow._new(0)
        for place, (_, entry, _) in zip(places, entries, strict=True):
            states[place.begin : place.end] = entry.embeds.cpu()
        flow._publish(0)
        torch.save([tuple(place) for place in places], flow._about)
        return flow

    @classmethod
    def found(cls, folder: Path, part: str, width: int, layer: int) -> Flow | None:
        """Return what an earlier run left before a layer; None: it left nothing that is whole."""
        flow = cls(folder, part, width, ())
        with suppress(OSError, RuntimeError, ValueError, TypeError, EOFError, pickle.UnpicklingError):
            flow.places = [Place(*place) for place in torch.load(flow._about, weights_only=True)]
            if flow._file(layer).stat().st_size == flow._size * 4:
                return flow
        return None

    def states(self, layer: int) -> Any:
        """Return what goes into a layer, all tokens of all questions. Raises OSError."""
        file = str(self._file(layer))
        return torch.from_file(file, shared=True, size=self._size, dtype=torch.float32).view(-1, self._width)

    def run(self, skeleton: Skeleton, first: int, kept: Sequence[int], done: Done) -> None:
        """Go through the layers from `first` on; the inputs of those in `kept` stay, and the last output. Raises SliceError, OSError."""
        for number in range(first, skeleton.layers[self._part]):
            with skeleton.tensors.held():
                module, routing = skeleton.layer(self._part, number)
                before, after = self.states(number), self._new(number + 1)
                for place in self.places:
                    if routing is not None:
                        routing.kinds = place.kinds
                    after[place.begin : place.end] = self._through(skeleton, module, number, before, place)
                del module, before, after
            self._publish(number + 1)
            done(number, routing)
            if number not in kept:
                self._file(number).unlink()

    def remove(self) -> None:
        """Remove all files. Raises OSError."""
        for path in self._folder.glob(f"{self._part}.*"):
            path.unlink()

    def _through(self, skeleton: Skeleton, module: Any, number: int, before: Any, place: Place) -> Any:
        device = next(module.parameters()).device
        hidden = before[place.begin : place.end][None].to(device)
        turned = skeleton.rotary(self._part, hidden, place.positions.to(device))
        hidden = module(hidden, attention_mask=None, position_embeddings=turned)[0].cpu()
        if number < len(place.deep):
            hidden[place.seen] += place.deep[number]
        return hidden

    @property
    def _size(self) -> int:
        return self.places[-1].end * self._width

    @property
    def _about(self) -> Path:
        return self._folder / f"{self._part}.places"

    def _file(self, layer: int) -> Path:
        return self._folder / f"{self._part}.{layer}.f32"

    def _staged(self, layer: int) -> Path:
        return self._file(layer).with_suffix(".new")

    def _new(self, layer: int) -> Any:
        staged = self._staged(layer)
        with suppress(FileNotFoundError):
            staged.unlink()
        opened = os.open(staged, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            # A mapped file that finds the disk full later would end the process by a signal.
            os.posix_fallocate(opened, 0, self._size * 4)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._folder)) from error
        finally:
            os.close(opened)
        file = str(staged)
        return torch.from_file(file, shared=True, size=self._size, dtype=torch.float32).view(-1, self._width)

    def _publish(self, layer: int) -> None:
        staged = self._staged(layer)
        opened = os.open(staged, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
        staged.replace(self._file(layer))


def kinds_of(tokens: Any, config: Any) -> Any:
    """Return what each token stands for: a place in MODALITIES. `config` is a thinker's or a talker's."""
    kinds = torch.full_like(tokens, TEXT)
    kinds[tokens == config.audio_token_id] = SPEECH
    for token in (config.image_token_id, config.video_token_id):
        kinds[tokens == token] = PICTURE
    return kinds
