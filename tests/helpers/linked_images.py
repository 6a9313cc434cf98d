"""Images of which one component is a link out of them: install, status, tune and uninstall must neither read nor write there."""

from __future__ import annotations

import ctypes
import hashlib
import os
import random
import shutil
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from click.testing import Result

from helpers.installation import CONFIG, device, install, status, uninstall
from helpers.killed_installations import NEW, modules
from helpers.linked_trees import by_hand, everything
from helpers.odd_files import KINDS
from helpers.trees import grow
from omniwatch.bundle import wiring
from omniwatch.tune import dropin
from omniwatch.tune.model import Limit

UNIT = "own.service"
_OPENED, _ACCESSED, _CHANGED = 0x20, 0x1, 0x2 | 0x4 | 0x40 | 0x80 | 0x100 | 0x200
"""IN_OPEN, IN_ACCESS, and what changes a file or a folder, of <sys/inotify.h>."""


def image(root: Path) -> Path:
    """A device with Debian's Prometheus and Alertmanager, accounts, and a drop-in of a user's."""
    device(root)
    status = ""
    for server in wiring.SERVERS:
        grow(
            root,
            f"usr/lib/systemd/system/{server.unit}: [Service]\\nExecStart=/usr/bin/{server.package} $ARGS",
        )
        grow(root, f'{str(server.config)[1:]}: # as shipped\n{str(server.defaults)[1:]}: ARGS=""')
        sums = "".join(
            f" {path} {hashlib.md5((root / str(path)[1:]).read_bytes(), usedforsecurity=False).hexdigest()}\n"
            for path in (server.config, server.defaults)
        )
        status += f"Package: {server.package}\nStatus: install ok installed\nConffiles:\n{sums}\n"
    (root / "var/lib/dpkg").mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text(status)
    grow(root, f"{CONFIG}: site: {{device: edge-7}}")
    grow(root, "etc/passwd: root:x:0:0::/:/bin/sh\netc/group: root:x:0:")
    grow(root, f"etc/systemd/system/{UNIT}.d/50-cpu.conf: [Service]\\nCPUQuota=80%")
    return root


def installed(root: Path) -> Path:
    """An image with all that can be installed."""
    image(root)
    with modules(NEW):
        assert install(root, "--profile", "orin", "--with-prometheus").exit_code == 0
    _tune(root)
    grow(root, "var/lib/omniwatch/checkpoint: counted so far")
    return root


def _tune(root: Path) -> None:
    dropin.apply(UNIT, dropin.text(UNIT, Limit(None), 900, None), lambda: None, root)


def components(root: Path) -> list[PurePosixPath]:
    """Every file and folder that an installation has or looks at; of the files that are many of a kind the first."""
    found, kinds = [], set()
    for path in sorted(root.rglob("*")):
        if path.is_file() and (path.parent, path.suffix) in kinds:
            continue
        kinds.add((path.parent, path.suffix))
        found.append(PurePosixPath(path.relative_to(root)))
    return found


class Scene:
    """An image, the same one installed, and a third one that is no part of either: what a link leads to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = {False: image(folder / "plain"), True: installed(folder / "installed")}
        self._elsewhere = installed(folder / "elsewhere")
        self.components = components(self._before[True])

    def play(self, component: PurePosixPath, dice: random.Random) -> str:
        """Have a component be a link to that of the other tree, a link in a circle or no file at all, and do all there is. Returns
        what is wrong, "" for nothing.
        """
        is_installed, is_by_hand = dice.random() < 0.5, dice.random() < 0.5
        root = self._folder / "linked"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self._before[is_installed], root, symlinks=True)
        link, target = root / component, self._elsewhere / component
        _remove(link)
        link.parent.mkdir(parents=True, exist_ok=True)
        up = "../" * 40 if dice.random() < 0.5 else "/"
        what = dice.choice(("link", "link", "link", "circle", *KINDS))
        if what == "link":
            link.symlink_to(up + str(target)[1:])
        elif what == "circle":
            link.symlink_to(link.name)
        else:
            KINDS[what](link)
        held = everything(self._elsewhere)
        with _watched(self._elsewhere) as seen, modules(NEW):
            if is_by_hand:
                with by_hand():
                    wrong = list(_faults(root, is_installed=is_installed))
            else:
                wrong = list(_faults(root, is_installed=is_installed))
        if seen:
            wrong.append(f"{seen[0]} was looked into")
        if everything(self._elsewhere) != held:
            wrong.append("something elsewhere was changed")
        where = f"{component}, {what}, {'installed' if is_installed else 'plain'}, {'by hand' if is_by_hand else 'by the kernel'}"
        return f"{where}: {'; '.join(wrong)}" if wrong else ""


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _faults(root: Path, *, is_installed: bool) -> Iterator[str]:
    """Do all there is; yield what ended in another way than by an answer or by lines that say why not."""
    every = ("--profile", "orin", "--with-prometheus")
    done = {"status": status(root), "diff": install(root, *every, "--diff")}
    if not is_installed:
        done["install"] = install(root, *every, "--force")
        try:
            dropin.diff(dropin.place(UNIT), "", root)
            _tune(root)
        except (OSError, dropin.DropinError):
            pass
    done["dry-run"] = uninstall(root, "--purge", "--dry-run")
    done["uninstall"] = uninstall(root, "--purge", "--yes")
    for name, result in done.items():
        if fault := _fault(result):
            yield f"{name}: {fault}"


def _fault(done: Result) -> str:
    if done.exception is None or isinstance(done.exception, SystemExit):
        return "" if done.exit_code in (0, 1, 2) else f"exit code {done.exit_code}"
    return "".join(traceback.format_exception(done.exception)[-2:])


@contextmanager
def _watched(folder: Path) -> Iterator[list[str]]:
    """Yield a list that has, at the end, which files and folders below were opened, read or changed."""
    libc = ctypes.CDLL(None, use_errno=True)
    watching = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    assert watching >= 0
    seen: list[str] = []
    try:
        places = {}
        for path in [
            folder,
            *(path for path in folder.rglob("*") if path.is_dir() and not path.is_symlink()),
        ]:
            number = libc.inotify_add_watch(watching, os.fsencode(path), _OPENED | _ACCESSED | _CHANGED)
            assert number >= 0, os.strerror(ctypes.get_errno())
            places[number] = path
        yield seen
        with open(watching, "rb", closefd=False, buffering=0) as events:
            while said := events.read(1 << 16):
                while said:
                    number, length = int.from_bytes(said[:4], "little"), int.from_bytes(said[12:16], "little")
                    name = said[16 : 16 + length].rstrip(b"\0").decode()
                    seen.append(str(places.get(number, folder) / name))
                    said = said[16 + length :]
    finally:
        os.close(watching)
