"""The folder beside OUT in which a cut checkpoint is made, and what is known of how far it is.

`.OUT.slice/files` becomes OUT when all of it is there. `.OUT.slice/state.json` says what of it is on the disk for certain, and of
what it is made: a run that was killed goes on where it was, unless the checkpoint, keep.json or omniwatch are others now.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from omniwatch.desk.slice import SliceError
from omniwatch.system import atomic_write, leftovers, user_file

STATE_BYTES = 16 * 2**20


class State(msgspec.Struct):
    """What is on the disk for certain."""

    identity: str
    digests: dict[str, str] = {}
    """SHA-256 of each file that is whole, by name."""
    name: str = ""
    """The file that is not whole yet."""
    size: int = 0
    """Its bytes that are there."""
    published: bool = False
    """All is whole, and is put into OUT's place."""


class BusyError(SliceError):
    """Another process holds the folder."""


@contextmanager
def alone(lock_file: Path, busy: str) -> Iterator[None]:
    """Hold a lock. Raises BusyError with the line `busy` where another process has it, OSError."""
    lock = os.open(lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError(busy) from error
        yield
    finally:
        os.close(lock)


class Work:
    """The folder, held by one process at a time."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.folder = out.with_name(f".{out.name}.slice")
        self.files = self.folder / "files"
        self._state_file = self.folder / "state.json"
        self._lock_file = self.folder / "lock"
        self.state = State("")

    @contextmanager
    def held(self, identity: str) -> Iterator[bool]:
        """Hold the folder; yield whether there is something to go on with. Raises BusyError, OSError."""
        self.folder.mkdir(exist_ok=True)
        with alone(self._lock_file, f"{self.out}: another slice is making it now"):
            found = self._read()
            goes_on = found is not None and found.identity == identity and self.files.is_dir()
            if found is None or not goes_on:
                shutil.rmtree(self.files, ignore_errors=True)
                self.files.mkdir()
                self.state = State(identity)
                self.save()
            else:
                self.state = found
            yield goes_on

    def bytes_there(self) -> int:
        """Bytes that an earlier run has written. Raises OSError."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return sum(entry.stat().st_size for entry in self.files.iterdir())
        return 0

    def was_finished(self, identity: str) -> bool:
        """Tell whether a run of this identity was killed after OUT was in its place."""
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            return True
        found = self._read()
        return (
            found is not None and found.identity == identity and found.published and not self.files.exists()
        )

    def save(self) -> None:
        """Write down how far it is. Raises OSError."""
        atomic_write.replace(self._state_file, msgspec.json.encode(self.state), durable=True)

    def publish(self) -> None:
        """Put all of it into OUT's place. Raises SliceError, OSError."""
        _force(self.files)
        if os.path.lexists(self.out):
            raise SliceError(f"{self.out}: is there already")
        self.state.published = True
        self.save()
        self.files.rename(self.out)
        _force(self.out.parent)
        self.remove()

    def remove(self) -> None:
        """Remove what is not OUT, the state last: it says that OUT is whole."""
        shutil.rmtree(self.files, ignore_errors=True)
        with suppress(OSError):
            self._lock_file.unlink(missing_ok=True)
            leftovers.remove(self._state_file)
            self._state_file.unlink(missing_ok=True)
            self.folder.rmdir()

    def _read(self) -> State | None:
        with suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(user_file.read(self._state_file, STATE_BYTES), type=State)
        return None


def _force(directory: Path) -> None:
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
