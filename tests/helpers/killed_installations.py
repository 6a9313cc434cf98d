"""Installations, upgrades and removals that are killed at a write, and what the second run makes of them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from helpers.installation import CONFIG, MANIFEST, device, install, snapshot, uninstall
from helpers.kills import killed_at
from helpers.trees import grow
from omniwatch.bundle import program_files

ROBOT = "notify: {robots: [{kind: feishu, url_file: /etc/omniwatch/secrets/feishu}]}"
FLEET = "fleet: {remote_write_url: 'https://centre.example/w', agent: prometheus}"
OLD, NEW = "0.0.1", "0.1.0"
_STRAY = re.compile(r"(^|/)\.[^/]+\.\d+$")
_NAMED = re.compile(r"^ExecStart=(/opt/omniwatch/\S+)", re.MULTILINE)


class Kind(NamedTuple):
    """What is done first, what is killed and run again, and with which options."""

    prepare: Callable[[Path], object]
    run: Callable[[Path], int]


def _old(root: Path) -> None:
    """An installation of before: another agent, a robot that goes, and a module that the program no longer has."""
    grow(
        root, f"usr/bin/vmagent: stands for it\n{CONFIG}: {ROBOT}\\n{FLEET.replace('prometheus', 'vmagent')}"
    )
    with modules(OLD):
        _succeeds(install(root, "--profile", "orin", "--fleet").exit_code)
    (root / CONFIG).write_text(FLEET)


def _installed(root: Path) -> None:
    grow(root, f"{CONFIG}: {ROBOT}\\n{FLEET}")
    with modules(NEW):
        _succeeds(install(root, "--profile", "orin", "--fleet").exit_code)
    grow(root, "var/lib/omniwatch/checkpoint: counted so far\nvar/lib/omniwatch-notify/queue: a page")


def _succeeds(code: int) -> int:
    assert code == 0
    return code


KINDS = {
    "install": Kind(lambda root: None, lambda root: install(root, "--profile", "orin").exit_code),
    "upgrade": Kind(_old, lambda root: install(root, "--profile", "orin", "--fleet").exit_code),
    "uninstall": Kind(_installed, lambda root: uninstall(root).exit_code),
    "purge": Kind(_installed, lambda root: uninstall(root, "--purge", "--yes").exit_code),
}


@contextmanager
def modules(version: str) -> Iterator[None]:
    """Have the program be three files: how many more are copied alike makes no other kind of moment."""
    own = Path(program_files.__file__)
    names = ("omniwatch/cli/__init__.py", "omniwatch/events.py", f"omniwatch-{version}.dist-info/METADATA")
    with mock.patch.object(program_files, "_modules", return_value=dict.fromkeys(names, own)):
        yield


class Scene:
    """One kind, prepared once: each play begins with a copy."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self._steps = kind, KINDS[kind]
        self._prepared, self._killed = folder / "prepared", folder / "killed"
        self._prepared.mkdir(parents=True)
        grow(device(self._prepared), "usr/bin/prometheus: stands for it")
        self._steps.prepare(self._prepared)
        self._before = snapshot(self._prepared).keys()
        whole = self._copy(folder / "whole")
        with modules(NEW):
            _succeeds(self._steps.run(whole))
            self.writes = self._run_and_kill(1 << 30) or 0
        self._wanted = _comparable(snapshot(whole))

    def play(self, number: int) -> str:
        """Kill it at a write, from 1 to `writes`, and run it again. Returns what is wrong then, "" for nothing."""
        with modules(NEW):
            if self._run_and_kill(number) is not None:
                return "it was not killed"
            wrong = list(_dangling(self._killed))
            code = self._steps.run(self._killed)
        if code and self.kind in ("install", "upgrade"):
            wrong.append(f"the second run ended with {code}")
        found = _comparable(snapshot(self._killed))
        for name in sorted(self._wanted.keys() | found.keys()):
            # A folder that stood alone when it was killed is nobody's: no manifest could say who made it.
            if self._wanted.get(name) != found.get(name) and (name, found.get(name)) != ("opt", "folder"):
                wrong.append(f"{name} differs")
        wrong += [f"{name} is a stray" for name in found.keys() - self._before if _STRAY.search(name)]
        return "; ".join(wrong)

    def _run_and_kill(self, number: int) -> int | None:
        self._copy(self._killed)
        return killed_at(number, self._killed, lambda: self._steps.run(self._killed))

    def _copy(self, to: Path) -> Path:
        shutil.rmtree(to, ignore_errors=True)
        return shutil.copytree(self._prepared, to, symlinks=True)


def _comparable(tree: dict[str, str]) -> dict[str, str]:
    """Leave out of a manifest which folders it made outside its own: one made just before a kill has nobody's word for it."""
    if MANIFEST not in tree:
        return tree
    listed = json.loads(bytes.fromhex(tree[MANIFEST]))
    listed["directories"] = [name for name in listed["directories"] if name not in ("/opt", "/opt/omniwatch")]
    return {**tree, MANIFEST: json.dumps(listed)}


def _dangling(root: Path) -> Iterator[str]:
    """Yield the units that start at boot and name a program that is not there."""
    for link in (root / "etc/systemd/system/multi-user.target.wants").glob("*.service"):
        unit = link.parent / link.readlink()
        if not unit.exists():
            yield f"{link.name} is enabled and not there"
            continue
        for program in _NAMED.findall(unit.read_text()):
            if not (root / program[1:]).exists():
                yield f"{unit.name} names {program}, which is not there"
