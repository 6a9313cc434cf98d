"""Notice another process that resumes beside the same event file: neither can resume what the other served."""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)
NOT_ALONE = (
    "%s: another process resumes here, too: what it served cannot be resumed by this one; "
    "a balancer must keep each client on its own process"
)


class Lock:
    """A lock beside the event file, held by the first process that resumes; the others say so once at their start."""

    def __init__(self, events: Path) -> None:
        self._path = events.with_name(f".{events.name}.resume")
        self._fd = -1

    def take(self) -> None:
        """Hold the lock, or log that another process does. Without a folder to lock in there is nothing to say."""
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.warning(NOT_ALONE, self._path)
            self.release()
        except OSError as error:
            log.debug("no lock: %s", error)
            self.release()

    def release(self) -> None:
        """Let go of it; nothing where it is not held."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
