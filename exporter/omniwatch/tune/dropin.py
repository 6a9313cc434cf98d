"""Write a drop-in, the file before kept beside it, and take it back; and the drop-in of a unit's CPU limits."""

from __future__ import annotations

import difflib
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from omniwatch.host.cgroup import Limits
from omniwatch.system import rooted
from omniwatch.system.errors import UserError
from omniwatch.tune.model import Limit

NAME = "50-cpu.conf"
MODE = 0o644
_UNITS = PurePosixPath("/etc/systemd/system")
MARK = "# Written by `omniwatch tune`"
_BEFORE = ".before-omniwatch"
_TOLERANCE = 0.02


class DropinError(UserError):
    """The drop-in cannot be written or taken back."""


def place(unit: str) -> PurePosixPath:
    """Where the unit's drop-in is."""
    return _UNITS / f"{unit}.d" / NAME


def text(unit: str, limit: Limit, weight: int, burst_file: str | None) -> str:
    """The drop-in. systemd has no directive for a burst: a service writes it to `burst_file` at each start."""
    lines = [f"{MARK}; `{_way_back(unit)}` takes it back.", f"[{unit.rpartition('.')[2].capitalize()}]"]
    if limit.quota_s is None:
        lines += ["CPUQuota=", "CPUQuotaPeriodSec="]
    else:
        lines += [f"CPUQuota={limit.cores * 100:.4g}%", f"CPUQuotaPeriodSec={limit.period_s * 1000:.0f}ms"]
    lines += ["CPUAccounting=yes", f"CPUWeight={weight}"]
    if limit.burst_s and burst_file:
        burst = f"""'echo {limit.burst_s * 1e6:.0f} > "$$0"'"""
        lines += [f"ExecStartPost=-+/bin/sh -c {burst} {_word(burst_file)}"]
    return "\n".join(lines) + "\n"


def diff(target: PurePosixPath, wanted: str, root: Path = Path("/")) -> str:
    """A unified diff from the drop-in that is there to the one wanted; "" when they are the same. Raises OSError."""
    name = str(rooted.shown(root, target))
    try:
        now = rooted.read(root, target).decode(errors="replace")
    except FileNotFoundError:
        now = ""
    lines, before = wanted.splitlines(True), name if now else "/dev/null"
    return "".join(difflib.unified_diff(now.splitlines(True), lines, before, name))


def apply(unit: str, wanted: str, reload: Callable[[], None], root: Path = Path("/")) -> Path:
    """Write the drop-in, the one before kept for `revert`, and have systemd read it. Raises DropinError."""
    target = place(unit)
    try:
        rooted.make_folders(root, target.parent)
        with alone(root, target):
            put(root, target, wanted)
            reload()
    except OSError as error:
        raise DropinError(f"{error.filename}: {error.strerror}; tune --apply needs root") from error
    return rooted.shown(root, target)


def revert(unit: str, reload: Callable[[], None], root: Path = Path("/")) -> Path | None:
    """Bring back the drop-in of before, or none; returns it, or None when there was nothing to take back. Raises DropinError."""
    target = place(unit)
    if not rooted.is_folder(root, target.parent):
        return None
    try:
        with alone(root, target):
            found = take_back(root, target, reload)
            if not rooted.names(root, target.parent):
                rooted.remove_empty(root, target.parent)
    except OSError as error:
        raise DropinError(f"{error.filename}: {error.strerror}; tune --revert needs root") from error
    return rooted.shown(root, target) if found else None


@contextmanager
def alone(root: Path, *targets: PurePosixPath) -> Iterator[None]:
    """Keep a second one out of the first one's folder, and remove what one that was killed left there. Raises DropinError, OSError."""
    with rooted.lock(root, targets[0].parent) as is_alone:
        if not is_alone:
            raise DropinError(
                f"{rooted.shown(root, targets[0])}: another `omniwatch tune` is at work here; run this again"
            )
        for target in targets:
            rooted.remove_staged(root, target.parent, (target.name, _before(target).name))
        yield


def put(root: Path, target: PurePosixPath, wanted: str) -> None:
    """Write a drop-in; one that is not ours is kept for `take_back`. Raises OSError."""
    if rooted.stat_of(root, target) and not is_ours(root, target):
        rooted.replace(root, _before(target), rooted.read(root, target), mode=MODE)
    rooted.replace(root, target, wanted.encode(), mode=MODE)


def take_back(root: Path, target: PurePosixPath, reload: Callable[[], None] = lambda: None) -> bool:
    """Bring back what was there before, or nothing; False when there was nothing to take back. Raises DropinError, OSError."""
    kept = _before(target)
    found, has_kept = rooted.stat_of(root, target) is not None, has_before(target, root)
    if found and not is_back(root, target) and not is_ours(root, target):
        raise DropinError(
            f"{rooted.shown(root, target)}: omniwatch did not write this file and leaves it alone"
        )
    if has_kept:
        rooted.replace(root, target, rooted.read(root, kept), mode=MODE)
    else:
        rooted.remove(root, target)
    reload()
    rooted.remove(root, kept)
    return found or has_kept


def own_units(root: Path = Path("/")) -> list[str]:
    """Every unit whose drop-in `apply` wrote or whose revert has not ended. One that was there before is not among them. Raises OSError."""
    units = [name.removesuffix(".d") for name in rooted.names(root, _UNITS) if name.endswith(".d")]
    return [unit for unit in units if is_ours(root, place(unit)) or is_back(root, place(unit))]


def ways_back(units: Iterable[str], root: Path = Path("/")) -> str:
    """How to take the drop-in of each unit back, in words that follow others."""
    return "".join(f"; `{_way_back(unit)}` takes {rooted.shown(root, place(unit))} back" for unit in units)


def _way_back(unit: str) -> str:
    """The command as a shell reads it: a unit's name may have a backslash in it."""
    return f"omniwatch tune --unit {shlex.quote(unit)} --revert"


def has_before(target: PurePosixPath, root: Path = Path("/")) -> bool:
    """Whether taking it back brings another drop-in back in its place."""
    found = rooted.stat_of(root, _before(target))
    return found is not None and stat.S_ISREG(found.st_mode)


def mismatch(limit: Limit, weight: int, taken: Limits | None) -> str:
    """Say in one line in what the kernel differs from what was set; "" when it took it."""
    if taken is None:
        return "the kernel's cpu controller is not active for this unit: no CPU limit applies to it"
    if (taken.quota_s is None) != (limit.quota_s is None):
        return f"the kernel has {_quota(taken.cores)}, not {_quota(None if limit.quota_s is None else limit.cores)}"
    if taken.cores is not None and abs(taken.cores / limit.cores - 1) > _TOLERANCE:
        return f"the kernel has {_quota(taken.cores)}, not {_quota(limit.cores)}"
    if limit.quota_s is not None and abs(taken.period_s / limit.period_s - 1) > _TOLERANCE:
        return f"the kernel's period is {taken.period_s * 1000:.0f} ms, not {limit.period_s * 1000:.0f} ms"
    if taken.weight is not None and abs(taken.weight / weight - 1) > _TOLERANCE:
        return f"the kernel's weight is {taken.weight:.0f}, not {weight}"
    if taken.burst_s is not None and abs(taken.burst_s - limit.burst_s) > 0.001:
        return f"the kernel's burst is {taken.burst_s * 1000:.0f} ms, not {limit.burst_s * 1000:.0f} ms"
    return ""


def _before(target: PurePosixPath) -> PurePosixPath:
    return target.with_name(target.name + _BEFORE)


def is_back(root: Path, target: PurePosixPath) -> bool:
    """Whether a `take_back` that was killed has left the file as it was before, and the copy of it. Raises OSError."""
    found = rooted.stat_of(root, target)
    if found is None or not stat.S_ISREG(found.st_mode) or not has_before(target, root):
        return False
    return rooted.read(root, _before(target)) == rooted.read(root, target)


def is_ours(root: Path, target: PurePosixPath) -> bool:
    """Whether `put` wrote it. Raises OSError."""
    found = rooted.stat_of(root, target)
    if found is None or not stat.S_ISREG(found.st_mode):
        return False
    return rooted.read(root, target, len(MARK), cut=True) == MARK.encode()


def _word(text: str) -> str:
    """Write a text as one word of a command that systemd takes as it is: no escape, specifier or variable in it."""
    for sign, written in {"\\": r"\\", '"': r"\"", "\n": r"\n", "%": "%%", "$": "$$"}.items():
        text = text.replace(sign, written)
    return f'"{text}"'


def _quota(cores: float | None) -> str:
    return "no quota" if cores is None else f"a quota of {cores:.4g} CPUs"
