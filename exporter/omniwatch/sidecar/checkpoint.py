"""Save and load what a restart needs, in one file. A damaged file is rejected."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from omniwatch.system import atomic_write
from omniwatch.system.errors import UserError

VERSION = 1
"""Of what payloads mean. A file of another version is refused, and the run starts over."""

_MAGIC = b"omniwatch"
_HEADER = struct.Struct(f">{len(_MAGIC)}sHII")


class CheckpointError(UserError):
    """The file is no checkpoint of this program. The message: path, what is wrong."""


def save(path: Path, payload: bytes) -> None:
    """Replace the checkpoint at once, by a rename: whoever is killed in between leaves the old one. Raises OSError.

    It does not wait for the disk: that takes milliseconds to tenths of a second on flash, too long before each scrape, and
    would guard only against a crash of the whole machine, after which the newest checkpoint may be missing or damaged,
    which `load` tells; but the event files, on a tmpfs, are then gone, too. Written it is all the same, soon and each time,
    unless the directory is on a tmpfs (ext4 writes out what is renamed over a file): save what changed, and only that.
    """
    atomic_write.replace(path, _HEADER.pack(_MAGIC, VERSION, len(payload), zlib.crc32(payload)) + payload)


def load(path: Path) -> bytes | None:
    """Return the payload, None if there is no file. Raises CheckpointError, also where it cannot be read."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from error
    if not raw.startswith(_MAGIC[: len(raw)]) or not raw:
        raise CheckpointError(f"{path}: {'not a checkpoint of omniwatch' if raw else 'empty'}")
    if len(raw) < _HEADER.size:
        raise CheckpointError(f"{path}: cut short, {len(raw)} bytes")
    _, version, size, crc = _HEADER.unpack_from(raw)
    payload = raw[_HEADER.size :]
    if version != VERSION:
        raise CheckpointError(f"{path}: version {version}, this program reads version {VERSION}")
    if len(payload) != size:
        raise CheckpointError(f"{path}: {len(payload)} bytes where its header says {size}")
    if zlib.crc32(payload) != crc:
        raise CheckpointError(f"{path}: checksum does not match, the content was changed")
    return payload
