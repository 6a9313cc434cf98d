"""Write a checkpoint without some of its experts: everything is checked first, and OUT appears whole or not at all."""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from omniwatch import __version__
from omniwatch.desk.plan import checkpoint
from omniwatch.desk.plan.model import CONFIG
from omniwatch.desk.slice import SliceError, card, config, copying, keep_file, layout, source
from omniwatch.desk.slice.card import Written
from omniwatch.desk.slice.copying import SYNC_BYTES, Told
from omniwatch.desk.slice.keep_file import Keep
from omniwatch.desk.slice.layout import OutFile
from omniwatch.desk.slice.quantization import FILES as QUANTISERS
from omniwatch.desk.slice.source import Source
from omniwatch.desk.slice.work import BusyError, Work
from omniwatch.system import user_file

COME_ALONG = (
    "tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json", "generation_config.json",
    "*processor_config.json", "chat_template*", "*.jinja", "*.tiktoken", "*.model", "LICENSE*", "NOTICE*", *QUANTISERS,
)  # fmt: skip
"""Files of a model that hold for the cut one, too."""
SMALL_BYTES = 256 * 2**20
"""Longest file beside the weights that comes along."""
ROOM_BYTES = 16 * 2**20
"""Free space asked for beyond the files themselves."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Cutting(NamedTuple):
    """A cut that was checked: nothing of it is written yet."""

    source: Source
    keep: Keep
    keep_bytes: bytes
    out: Path
    files: list[OutFile]
    beside: dict[str, bytes]
    """What else OUT holds, by name."""
    left_out: list[str]
    digest: str

    @property
    def size(self) -> int:
        """Bytes to write."""
        return sum(file.size for file in self.files) + sum(map(len, self.beside.values()))


def check(model: Path, out: Path, keep_path: Path) -> Cutting:
    """Check all that can be wrong, but for the space. Raises SliceError, PlanError, OSError."""
    found = source.read(model)
    if out.name in ("", ".", ".."):
        raise SliceError(f"{out}: expected the name of a folder to be made")
    place = out.parent.resolve(strict=True)
    inside = model.resolve()
    if inside == place or inside in place.parents:
        raise SliceError(f"{out}: is within {model}")
    keep, keep_bytes = keep_file.read(keep_path)
    keep_file.check(keep, keep_path, found)
    files = layout.files(found, keep)
    beside, left_out = _beside(found, keep)
    beside[CONFIG] = config.cut(found, keep)
    beside[keep_file.NAME] = keep_bytes
    if (index := layout.index(files)) is not None:
        beside[checkpoint.INDEX] = index
    return Cutting(found, keep, keep_bytes, out, files, beside, left_out, source.digest(found))


def free_bytes(folder: Path) -> int:
    """Bytes free on a folder's disk. Raises OSError."""
    return shutil.disk_usage(folder).free


def check_place(cutting: Cutting, free: Callable[[Path], int] = free_bytes) -> None:
    """Raise SliceError where OUT is there already, or its disk has no space for it."""
    work = Work(cutting.out)
    if os.path.lexists(cutting.out):
        raise SliceError(f"{cutting.out}: is there already")
    there = work.bytes_there()
    room = free(cutting.out.parent)
    needed = cutting.size - there + ROOM_BYTES
    if room < needed:
        raise SliceError(
            f"{cutting.out}: {needed / 1e9:.2f} GB to write, and its disk has {room / 1e9:.2f} GB free"
        )


def write(
    cutting: Cutting,
    *,
    hashes: bool = False,
    told: Told = lambda count: None,
    goes_on: Callable[[int], None] = lambda count: None,
    free: Callable[[Path], int] = free_bytes,
    sync_bytes: int = SYNC_BYTES,
) -> None:
    """Write OUT. `goes_on` is told how much an earlier run has written. Raises SliceError, OSError."""
    work = Work(cutting.out)
    identity = _identity(cutting, hashes)
    if os.path.lexists(cutting.out) and work.was_finished(identity):
        work.remove()
        return
    check_place(cutting, free)
    before = _stats(cutting.source)
    try:
        with work.held(identity) as is_resumed:
            if is_resumed:
                goes_on(work.bytes_there())
            _fill(cutting, work, told, hashes=hashes, sync_bytes=sync_bytes)
            if _stats(cutting.source) != before:
                raise SliceError(f"{cutting.source.directory}: its files were changed meanwhile")
            work.publish()
    except BusyError:
        raise
    except SliceError:
        work.remove()
        raise
    except OSError as error:
        if error.errno in _FULL:
            work.remove()
            raise SliceError(f"{cutting.out}: {error.strerror}: nothing is kept of it") from error
        raise


def _fill(cutting: Cutting, work: Work, told: Told, *, hashes: bool, sync_bytes: int) -> None:
    of_source = {}
    if hashes:
        names = [path for path in cutting.source.directory.iterdir() if path.is_file()]
        of_source = {path.name: copying.sha256(path, lambda count: None) for path in sorted(names)}
    written = [
        Written(file.name, file.size, copying.write(work, file, told, sync_bytes=sync_bytes))
        for file in cutting.files
    ]
    for name, content in sorted(cutting.beside.items()):
        _put(work.files / name, content)
        written.append(Written(name, len(content), hashlib.sha256(content).hexdigest()))
        told(len(content))
    text = card.text(
        cutting.source,
        cutting.keep,
        version=__version__,
        digest=cutting.digest,
        keep_sha256=hashlib.sha256(cutting.keep_bytes).hexdigest(),
        written=written,
        left_out=cutting.left_out,
        hashes=of_source,
    )
    _put(work.files / card.NAME, text.encode())


def _put(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _beside(found: Source, keep: Keep) -> tuple[dict[str, bytes], list[str]]:
    """Read the files that come along; name those that do not."""
    come: dict[str, bytes] = {}
    left: list[str] = []
    weights = {file.name for file in found.weights.files}
    for path in sorted(found.directory.iterdir()):
        name = path.name
        if name in weights or name in (CONFIG, checkpoint.INDEX, keep_file.NAME, card.NAME):
            continue
        if not path.is_file() or not any(fnmatch.fnmatchcase(name, pattern) for pattern in COME_ALONG):
            left.append(name)
            continue
        content = user_file.read(path, SMALL_BYTES)
        come[name] = config.cut_settings(content, found, keep, str(path)) if name in QUANTISERS else content
    return come, left


def _identity(cutting: Cutting, hashes: bool) -> str:
    """What a folder left by an earlier run must be of, for this one to go on there."""
    parts = [__version__, cutting.digest, str(hashes), str(_stats(cutting.source))]
    digest = hashlib.sha256("\n".join(parts).encode() + cutting.keep_bytes)
    for name, content in sorted(cutting.beside.items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _stats(found: Source) -> list[tuple[str, int, int]]:
    stats = [(path.name, path.stat()) for path in found.weights.files]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
