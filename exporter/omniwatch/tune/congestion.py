"""Look which congestion control new connections get, and have them get BBR."""

from __future__ import annotations

import errno
import re
from contextlib import suppress
from math import sqrt
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from omniwatch.system import rooted
from omniwatch.tune import dropin
from omniwatch.tune.dropin import DropinError

BBR = "bbr"
SEGMENT_BYTES = 1448
"""Payload of a full segment: 1500 bytes less the headers of IPv4 and TCP, with timestamps."""
SYSCTL = PurePosixPath("/etc/sysctl.d/99-zz-omniwatch-congestion.conf")
"""By its name read after all others, Debian's 99-sysctl.conf included."""
MODULES = PurePosixPath("/etc/modules-load.d/omniwatch-congestion.conf")
_NET = PurePosixPath("/proc/sys/net/ipv4")
_RUNNING = _NET / "tcp_congestion_control"
_HEAD = f"{dropin.MARK}; `omniwatch tune --congestion --revert` takes it back."
_BEFORE = "# Before: "


class Kernel(NamedTuple):
    """What new connections get."""

    release: str
    congestion_control: str
    bbr: str
    """Where BBR is; "" where the kernel has none."""
    is_module: bool


def most_bytes_s(loss: float, rtt_s: float) -> float:
    """Return the most that a loss-based connection carries, in bytes a second, where this share of packets is lost.

    Mathis, Semke, Mahdavi, Ott: The macroscopic behavior of the TCP congestion avoidance algorithm, 1997.
    """
    return 1.22 * SEGMENT_BYTES / (rtt_s * sqrt(loss))


def look(root: Path = Path("/")) -> Kernel:
    """Look at the kernel. Raises DropinError where it does not say."""
    runs, release = _text(root, _RUNNING), _text(root, PurePosixPath("/proc/sys/kernel/osrelease"))
    if not runs:
        raise DropinError(f"{rooted.shown(root, _RUNNING)}: the kernel does not say what new connections get")
    modules = _text(root, PurePosixPath("/lib/modules") / release / "modules.dep")
    is_module = re.search(r"(?m)(^|/)tcp_bbr\.ko[.\w]*:", modules) is not None
    bbr = "a module that is not loaded" if is_module else ""
    if BBR in _text(root, _NET / "tcp_available_congestion_control").split():
        bbr = "a module, loaded" if is_module else "in this kernel"
    return Kernel(release, runs, bbr, is_module)


def files(kernel: Kernel, root: Path = Path("/")) -> dict[PurePosixPath, str]:
    """Return what has every start give BBR to new connections, by path. The first says what there was before."""
    before = _before(root) or kernel.congestion_control
    lines = [_HEAD, f"{_BEFORE}{before}", f"net.ipv4.tcp_congestion_control = {BBR}"]
    if [int(part) for part in re.findall(r"\d+", kernel.release)[:2]] < [4, 13]:
        # TCP does not pace by itself yet.
        lines.append("net.core.default_qdisc = fq")
    found = {SYSCTL: "\n".join(lines) + "\n"}
    return found | ({MODULES: f"{_HEAD}\ntcp_bbr\n"} if kernel.is_module else {})


def diff(wanted: dict[PurePosixPath, str], root: Path = Path("/")) -> str:
    """A unified diff from the files that are there to those wanted. Raises OSError."""
    return "".join(dropin.diff(target, text, root) for target, text in wanted.items())


def apply(wanted: dict[PurePosixPath, str], root: Path = Path("/")) -> str:
    """Write the files, set the value that runs, and read back; return what the kernel has otherwise, or "". Raises DropinError."""
    try:
        for target in wanted:
            rooted.make_folders(root, target.parent)
        with dropin.alone(root, SYSCTL, MODULES):
            for target, text in wanted.items():
                dropin.put(root, target, text)
            try:
                _set(root, BBR)
            except OSError:
                _take_back(root)
                raise
    except OSError as error:
        raise DropinError(f"{error.filename}: {error.strerror}; tune --apply needs root") from error
    runs = _text(root, _RUNNING)
    return "" if runs == BBR else f"the kernel has {runs}, not {BBR}"


def revert(root: Path = Path("/"), *, is_running: bool = True) -> list[Path]:
    """Take back the files, and the value if this root's kernel runs; return what was taken back. Raises DropinError."""
    if not rooted.is_folder(root, SYSCTL.parent):
        return []
    try:
        with dropin.alone(root, SYSCTL, MODULES):
            before = _before(root)
            if is_running and before and _text(root, _RUNNING) == BBR:
                _set(root, before)
            return _take_back(root)
    except OSError as error:
        raise DropinError(f"{error.filename}: {error.strerror}; tune --revert needs root") from error


def _take_back(root: Path) -> list[Path]:
    # What says how it was goes last: until then one that is killed can be run again.
    return [rooted.shown(root, target) for target in (MODULES, SYSCTL) if dropin.take_back(root, target)]


def _before(root: Path) -> str:
    """Return what ran before `apply`; "" where there was none."""
    lines = _text(root, SYSCTL).splitlines() if dropin.is_ours(root, SYSCTL) else []
    return next((line[len(_BEFORE) :] for line in lines if line.startswith(_BEFORE)), "")


def _text(root: Path, path: PurePosixPath) -> str:
    """Return a file's text; "" where it cannot be read."""
    with suppress(OSError):
        return rooted.read(root, path).decode(errors="replace").strip()
    return ""


def _set(root: Path, value: str) -> None:
    """Have new connections get it from now on; the kernel loads its module. Raises OSError."""
    path = rooted.shown(root, _RUNNING)
    try:
        path.write_text(value, encoding="ascii")
    except OSError as error:
        why = f"the kernel does not load {value}" if error.errno == errno.ENOENT else error.strerror
        raise OSError(error.errno, why, str(path)) from error
