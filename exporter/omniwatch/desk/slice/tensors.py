"""Read a checkpoint's tensors for arithmetic, in float32, a few at a time. What is read stays no longer than its reader wants it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from omniwatch.desk.slice import SliceError
from omniwatch.desk.slice.source import Source

PLAIN = ("F32", "BF16", "F16")
"""Types that hold numbers as they are."""


def check_plain(source: Source) -> None:
    """Raise SliceError for a checkpoint whose weights are packed: what such weights compute is the server's own."""
    packed = next((tensor for tensor in source.weights.tensors if tensor.dtype not in PLAIN), None)
    if packed is not None:
        raise SliceError(
            f"{source.directory}: {packed.name[:100]} is {packed.dtype}: scores and comparisons are of a checkpoint that is "
            "not quantised"
        )


class Tensors:
    """A checkpoint's tensors by name."""

    def __init__(self, source: Source, device: str) -> None:
        self._where = source.directory
        self._files = {tensor.name: tensor.file for tensor in source.weights.tensors}
        self._device = device
        self._open: dict[Path, Any] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._files

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let go of the files afterwards, and with them of all that was read as it is stored."""
        try:
            yield
        finally:
            self._open.clear()

    def stored(self, name: str) -> Any:
        """Return a tensor as it is stored: memory is taken for what is looked at. Raises SliceError, OSError."""
        if name not in self._files:
            raise SliceError(f"{self._where}: no tensor {name[:100]}")
        file = self._files[name]
        if file not in self._open:
            self._open[file] = safe_open(file, framework="pt")
        return self._open[file].get_tensor(name)

    def read(self, name: str) -> Any:
        """Return a copy in float32. Raises SliceError, OSError."""
        return self.stored(name).to(self._device, torch.float32, copy=True)

    def fill(self, module: Any, prefix: str) -> None:
        """Give a module its weights: those whose names begin with the prefix. Raises SliceError, OSError."""
        wanted = {name: held.shape for name, held in module.state_dict().items()}
        found = {}
        for name, shape in wanted.items():
            found[name] = self.read(f"{prefix}.{name}")
            if found[name].shape != shape:
                raise SliceError(
                    f"{self._where}: {prefix}.{name}: shape {list(found[name].shape)}, config.json makes it {list(shape)}"
                )
        module.load_state_dict(found, assign=True)

    def experts(self, prefix: str, count: int, width: int) -> list[tuple[Any, Any]]:
        """Return each expert's gate and up projection as one (`width` rows each), and its down projection. Raises SliceError, OSError."""
        fused = f"{prefix}.gate_up_proj"
        if fused in self:
            both, down = self.stored(fused), self.stored(f"{prefix}.down_proj")
            if both.shape[1] != 2 * width:
                raise SliceError(
                    f"{self._where}: {fused}: shape {list(both.shape)}, expected {2 * width} rows for each expert"
                )
            return [
                tuple(held[number].to(self._device, torch.float32, copy=True) for held in (both, down))
                for number in range(count)
            ]
        found = []
        for number in range(count):
            gate, up, down = (
                self.read(f"{prefix}.{number}.{name}_proj.weight") for name in ("gate", "up", "down")
            )
            found.append((torch.cat((gate, up)), down))
        return found
