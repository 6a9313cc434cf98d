"""Write, read back and remove the unit drop-in of a recommendation."""

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
_MARK = "# Written by `omniwatch tune`"
_BEFORE = ".before-omniwatch"
_TOLERANCE = 0.02


class DropinError(UserError):
    """The drop-in cannot be written or taken back."""


def place(unit: str) -> PurePosixPath:
    """Where the unit's drop-in is."""
    return _UNITS / f"{unit}.d" / NAME


def text(unit: str, limit: Limit, weight: int, burst_file: str | None) -> str:
    """The drop-in. systemd has no directive for a burst: a service writes it to `burst_file` at each start."""
    lines = [f"{_MARK}; `{_way_back(unit)}` takes it back.", f"[{unit.rpartition('.')[2].capitalize()}]"]
    if limit.quota_s is None:
        lines += ["CPUQuota=", "CPUQuotaPeriodSec="]
    else:
        lines += [f"CPUQuota={limit.cores * 100:.4g}%", f"CPUQuotaPeriodSec={limit.period_s * 1000:.0f}ms"]
    lines += ["CPUAccounting=yes", f"CPUWeight={weight}"]
    if limit.burst_s and burst_file:
        burst = f"""'echo {limit.burst_s * 1e6:.0f} > "$$0"'"""
        lines += [f"ExecStartPost=-+/bin/sh -c {burst} {_word(burst_file)}"]
    return "\n".join(lines) + "\n"


def diff(unit: str, wanted: str, root: Path = Path("/")) -> str:
    """A unified diff from the drop-in that is there to the one wanted; "" when they are the same. Raises OSError."""
    target = str(rooted.shown(root, place(unit)))
    try:
        now = rooted.read(root, place(unit)).decode(errors="replace")
    except FileNotFoundError:
        now = ""
    return "".join(
        difflib.unified_diff(
            now.splitlines(True), wanted.splitlines(True), target if now else "/dev/null", target
        )
    )


def apply(unit: str, wanted: str, reload: Callable[[], None], root: Path = Path("/")) -> Path:
    """Write the drop-in, the one before kept for `revert`, and have systemd read it. Raises DropinError."""
    target = place(unit)
    try:
        rooted.make_folders(root, target.parent)
        with _alone(root, unit):
            if rooted.stat_of(root, target) and not _is_ours(root, unit):
                rooted.replace(root, _before(unit), rooted.read(root, target), mode=MODE)
            rooted.replace(root, target, wanted.encode(), mode=MODE)
            reload()
    except OSError as error:
        raise DropinError(f"{error.filename}: {error.strerror}; tune --apply needs root") from error
    return rooted.shown(root, target)


def revert(unit: str, reload: Callable[[], None], root: Path = Path("/")) -> Path | None:
    """Bring back the drop-in of before, or none; returns it, or None when there was nothing to take back. Raises DropinError."""
    target, kept = place(unit), _before(unit)
    if not rooted.is_folder(root, target.parent):
        return None
    try:
        with _alone(root, unit):
            found, has_kept = rooted.stat_of(root, target) is not None, has_before(unit, root)
            # Killed before systemd had read it, an earlier one left the file as it was before, and the copy of it.
            is_back = found and has_kept and rooted.read(root, kept) == rooted.read(root, target)
            if found and not is_back and not _is_ours(root, unit):
                raise DropinError(
                    f"{rooted.shown(root, target)}: omniwatch did not write this file and leaves it alone"
                )
            if has_kept:
                rooted.replace(root, target, rooted.read(root, kept), mode=MODE)
            else:
                rooted.remove(root, target)
            reload()
            rooted.remove(root, kept)
            if not rooted.names(root, target.parent):
                rooted.remove_empty(root, target.parent)
    except OSError as error:
        raise DropinError(f"{error.filename}: {error.strerror}; tune --revert needs root") from error
    return rooted.shown(root, target) if found or has_kept else None


@contextmanager
def _alone(root: Path, unit: str) -> Iterator[None]:
    """Keep a second one out of the folder, and remove what one that was killed left there. Raises DropinError, OSError."""
    target = place(unit)
    with rooted.lock(root, target.parent) as is_alone:
        if not is_alone:
            raise DropinError(
                f"{rooted.shown(root, target)}: another `omniwatch tune` is at work here; run this again"
            )
        rooted.remove_staged(root, target.parent, (target.name, _before(unit).name))
        yield


def own_units(root: Path = Path("/")) -> list[str]:
    """Every unit whose drop-in `apply` wrote. One that was there before is not among them. Raises OSError."""
    units = [name.removesuffix(".d") for name in rooted.names(root, _UNITS) if name.endswith(".d")]
    return [unit for unit in units if _is_ours(root, unit)]


def ways_back(units: Iterable[str], root: Path = Path("/")) -> str:
    """How to take the drop-in of each unit back, in words that follow others."""
    return "".join(f"; `{_way_back(unit)}` takes {rooted.shown(root, place(unit))} back" for unit in units)


def _way_back(unit: str) -> str:
    """The command as a shell reads it: a unit's name may have a backslash in it."""
    return f"omniwatch tune --unit {shlex.quote(unit)} --revert"


def has_before(unit: str, root: Path = Path("/")) -> bool:
    """Whether `revert` brings another drop-in back in the place of this one."""
    found = rooted.stat_of(root, _before(unit))
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


def _before(unit: str) -> PurePosixPath:
    return place(unit).with_name(NAME + _BEFORE)


def _is_ours(root: Path, unit: str) -> bool:
    found = rooted.stat_of(root, place(unit))
    if found is None or not stat.S_ISREG(found.st_mode):
        return False
    return rooted.read(root, place(unit), len(_MARK), cut=True) == _MARK.encode()


def _word(text: str) -> str:
    """Write a text as one word of a command that systemd takes as it is: no escape, specifier or variable in it."""
    for sign, written in {"\\": r"\\", '"': r"\"", "\n": r"\n", "%": "%%", "$": "$$"}.items():
        text = text.replace(sign, written)
    return f'"{text}"'


def _quota(cores: float | None) -> str:
    return "no quota" if cores is None else f"a quota of {cores:.4g} CPUs"
