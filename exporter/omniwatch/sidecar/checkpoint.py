"""Save and load what a restart needs, in one file. A damaged file is rejected."""

from __future__ import annotations

import errno
import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path

from omniwatch.system import atomic_write, user_file
from omniwatch.system.errors import UserError

VERSION = 1
"""Format of the payload. `load` rejects a file of another version, and the sidecar starts over."""

_MAGIC = b"omniwatch"
_HEADER = struct.Struct(f">{len(_MAGIC)}sHII")


class CheckpointError(UserError):
    """The file is no checkpoint of this program. The message: path, what is wrong."""


def save(path: Path, payload: bytes) -> None:
    """Replace the checkpoint by a rename: a process killed meanwhile leaves the old file whole. Raises OSError.

    It does not wait for the disk. On flash that takes milliseconds to tenths of a second, too long before each scrape, and
    it would help only when the whole machine crashes. The newest checkpoint may then be missing, or damaged, which `load`
    detects. The event files, on a tmpfs, are lost in such a crash as well.

    Call it only when the payload has changed. Unless the directory is on a tmpfs, each call is soon a write to the disk:
    ext4 writes out a file that is renamed over another.
    """
    with suppress(FileNotFoundError):
        _refuse_foreign(path)
    atomic_write.replace(path, _HEADER.pack(_MAGIC, VERSION, len(payload), zlib.crc32(payload)) + payload)


def _refuse_foreign(path: Path) -> None:
    """Raise OSError unless it is a regular file of this account. Any other is neither read nor replaced."""
    found = path.stat()
    user_file.regular(found)
    if found.st_uid != os.geteuid():
        raise OSError(errno.EPERM, f"belongs to another account, {found.st_uid}")


def load(path: Path) -> bytes | None:
    """Return the payload, None if there is no file. Raises CheckpointError, also where it cannot be read."""
    try:
        _refuse_foreign(path)
        raw = user_file.read(path)
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
