"""Write, read back and remove the unit drop-in of a recommendation."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from pathlib import Path

from omniwatch.host.cgroup import Limits
from omniwatch.system import atomic_write
from omniwatch.system.errors import UserError
from omniwatch.tune.model import Limit

NAME = "50-cpu.conf"
MODE = 0o644
_MARK = "# Written by `omniwatch tune`"
_BEFORE = ".before-omniwatch"
_TOLERANCE = 0.02


class DropinError(UserError):
    """The drop-in cannot be written or taken back."""


def directory(unit: str, root: Path = Path("/")) -> Path:
    """Where systemd looks for the unit's drop-ins of this machine."""
    return root / "etc/systemd/system" / f"{unit}.d"


def text(unit: str, limit: Limit, weight: int, burst_file: str | None) -> str:
    """The drop-in. systemd has no directive for a burst: a service writes it to `burst_file` at each start."""
    revert = f"{_MARK}; `omniwatch tune --unit {unit} --revert` takes it back."
    lines = [revert, f"[{unit.rpartition('.')[2].capitalize()}]"]
    if limit.quota_s is None:
        lines += ["CPUQuota=", "CPUQuotaPeriodSec="]
    else:
        lines += [f"CPUQuota={limit.cores * 100:.4g}%", f"CPUQuotaPeriodSec={limit.period_s * 1000:.0f}ms"]
    lines += ["CPUAccounting=yes", f"CPUWeight={weight}"]
    if limit.burst_s and burst_file:
        lines += [f"ExecStartPost=-+/bin/sh -c 'echo {limit.burst_s * 1e6:.0f} > {burst_file}'"]
    return "\n".join(lines) + "\n"


def diff(unit: str, wanted: str, root: Path = Path("/")) -> str:
    """A unified diff from the drop-in that is there to the one wanted; "" when they are the same."""
    target = directory(unit, root) / NAME
    now = target.read_text(encoding="utf-8") if target.exists() else ""
    name = str(target) if now else "/dev/null"
    return "".join(difflib.unified_diff(now.splitlines(True), wanted.splitlines(True), name, str(target)))


def apply(unit: str, wanted: str, reload: Callable[[], None], root: Path = Path("/")) -> Path:
    """Write the drop-in, the one before kept for `revert`, and have systemd read it. Raises DropinError."""
    target = directory(unit, root) / NAME
    kept = target.with_name(NAME + _BEFORE)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not _is_ours(target):
            atomic_write.replace(kept, target.read_bytes(), mode=MODE, durable=True)
        atomic_write.replace(target, wanted.encode(), mode=MODE, durable=True)
    except OSError as error:
        raise DropinError(f"{error.filename}: {error.strerror}; tune --apply needs root") from error
    reload()
    return target


def revert(unit: str, reload: Callable[[], None], root: Path = Path("/")) -> Path | None:
    """Bring back the drop-in of before, or none; returns it, or None when there was nothing to take back. Raises DropinError."""
    target = directory(unit, root) / NAME
    kept = target.with_name(NAME + _BEFORE)
    if not target.exists():
        return None
    if not _is_ours(target):
        raise DropinError(f"{target}: omniwatch did not write this file and leaves it alone")
    try:
        if kept.exists():
            kept.replace(target)
        else:
            target.unlink()
            if not any(target.parent.iterdir()):
                target.parent.rmdir()
    except OSError as error:
        raise DropinError(f"{error.filename}: {error.strerror}; tune --revert needs root") from error
    reload()
    return target


def own_files(root: Path = Path("/")) -> list[Path]:
    """Every drop-in that `apply` wrote, of whichever unit. One that was there before is not among them. Raises OSError."""
    return sorted(path for path in directory("*", root).parent.glob(f"*.d/{NAME}") if _is_ours(path))


def unit_of(path: Path) -> str:
    """The unit that a drop-in is of."""
    return path.parent.name.removesuffix(".d")


def ways_back(paths: Iterable[Path]) -> str:
    """How to take each of these drop-ins back, in words that follow others."""
    return "".join(f"; `omniwatch tune --unit {unit_of(path)} --revert` takes {path} back" for path in paths)


def has_before(path: Path) -> bool:
    """Whether `revert` brings another drop-in back in the place of this one."""
    return path.with_name(NAME + _BEFORE).is_file()


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


def _is_ours(path: Path) -> bool:
    return path.is_file() and path.read_bytes().startswith(_MARK.encode())


def _quota(cores: float | None) -> str:
    return "no quota" if cores is None else f"a quota of {cores:.4g} CPUs"
