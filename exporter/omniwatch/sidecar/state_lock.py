"""Lock a state directory: two sidecars in one would overwrite each other's counts, two bridges each other's messages."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from omniwatch.system.errors import UserError


class HeldError(UserError):
    """Another process holds the directory."""


def hold(state_dir: Path) -> int:
    """Lock a state directory for as long as this process lives; return the descriptor that holds the lock.

    Raises HeldError, which names the holder, and OSError.
    """
    path = state_dir / "lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
        os.close(fd)
        who = f"process {holder}" if holder.isdecimal() else "another process"
        raise HeldError(f"{state_dir}: in use by {who}; give each its own --state-dir") from None
    except OSError:
        os.close(fd)
        raise
    os.ftruncate(fd, 0)
    os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    return fd
