"""What is written beside an installation, killed at a write: tune's drop-ins, checkpoint, history, the bridge's queue."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from helpers.event_files import lines
from helpers.installation import snapshot
from helpers.kills import killed_at
from helpers.trees import grow
from omniwatch.core.rule_states import Sample
from omniwatch.notify.messages import Message
from omniwatch.notify.outbox import Waiting
from omniwatch.notify.queue_file import QueueFile
from omniwatch.settings import Settings
from omniwatch.sidecar.live import Live
from omniwatch.sidecar.loop import Sidecar
from omniwatch.sources.spec import open_source
from omniwatch.tune import congestion, dropin
from omniwatch.tune.model import Limit

UNIT = "qwen3-omni.service"
DROPINS = Path("etc/systemd/system") / f"{UNIT}.d"
LOADED = "run/loaded"
"""What systemd has read at its last reload."""
EVENTS = 40
_STRAY = re.compile(r"(^|/)\.[^/]+\.\d+$")


class Kind(NamedTuple):
    """What is done first, what is killed and run again, and what has to come of it; `kept` is wrong right after a kill, or ""."""

    prepare: Callable[[Path], object]
    run: Callable[[Path], object]
    outcome: Callable[[Path], object]
    kept: Callable[[Path], str] = lambda root: ""


def _reload(root: Path) -> None:
    (root / LOADED).parent.mkdir(exist_ok=True)
    (root / LOADED).write_text(repr(_read_by_systemd(root)))


def _read_by_systemd(root: Path) -> list[tuple[str, str]]:
    return [(path.name, path.read_text()) for path in sorted((root / DROPINS).glob("*.conf"))]


def _apply(root: Path) -> None:
    dropin.apply(UNIT, dropin.text(UNIT, Limit(None), 900, None), lambda: _reload(root), root)


def _revert(root: Path) -> None:
    dropin.revert(UNIT, lambda: _reload(root), root)


def _others(root: Path) -> None:
    grow(root, f"etc/systemd/system/\n{DROPINS}/50-cpu.conf: [Service]\\nCPUQuota=80%")
    _reload(root)


def _tuned(root: Path) -> dict[str, str]:
    """The tree, once systemd has read it."""
    loaded = (root / LOADED).read_text()
    assert loaded == repr(_read_by_systemd(root)), "systemd has read something else"
    return snapshot(root)


def _kernel(root: Path) -> None:
    """A kernel whose BBR is a module, and another's file in our file's place."""
    grow(
        root,
        "proc/sys/net/ipv4/tcp_congestion_control: cubic\nproc/sys/kernel/osrelease: 6.1\n"
        "lib/modules/6.1/modules.dep: kernel/net/ipv4/tcp_bbr.ko:\netc/sysctl.d/\netc/modules-load.d/\n"
        f"{str(congestion.SYSCTL)[1:]}: net.ipv4.tcp_congestion_control=reno",
    )


def _set(root: Path, value: str) -> None:
    """What a kernel does, whose value is never half there."""
    with (root / "proc/sys/net/ipv4/tcp_congestion_control").open("r+") as file:
        file.write(value.ljust(8))


def _congest(root: Path) -> None:
    with mock.patch.object(congestion, "_set", _set):
        assert congestion.apply(congestion.files(congestion.look(root), root), root) == ""


def _decongest(root: Path) -> None:
    with mock.patch.object(congestion, "_set", _set):
        congestion.revert(root)


def _running(root: Path) -> tuple[str, dict[str, str]]:
    """What the kernel has, and the rest of the tree."""
    value = (root / "proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    return value, {name: what for name, what in snapshot(root).items() if not name.startswith("proc")}


def _count(root: Path) -> dict[str, float]:
    """Read on as the sidecar does, save, and return the events counted."""
    sidecar = Sidecar(
        Settings(),
        [open_source(f"tail:{root}/events.jsonl")],
        state_file=root / "state/checkpoint",
        clock=lambda: 1000.0,
        monotonic=lambda: 1000.0,
    )
    stop = threading.Event()
    stop.set()
    while sidecar.step():
        pass
    sidecar.run(stop)
    counted = {
        sample.name: sample.value
        for family in sidecar.collect()
        for sample in family.samples
        if sample.name in ("omniwatch_events_total", "omniwatch_events_lost_total")
    }
    sidecar.close()
    return counted


def _counting(root: Path) -> None:
    (root / "state").mkdir()
    (root / "events.jsonl").write_bytes(lines(range(1, EVENTS // 2)))
    _count(root)
    (root / "events.jsonl").write_bytes(lines(range(1, EVENTS)))


def _live(root: Path) -> Live:
    (root / "state").mkdir(exist_ok=True)
    return Live(Settings(), root / "state" / "history", threading.Lock(), lambda: 1000.0, lambda: 1000.0)


def _hear(root: Path, *drifts: float) -> None:
    """Keep a history of so many seconds, as the sidecar does."""
    kept = _live(root)
    for number, drift_ms in enumerate(drifts):
        kept.history.add(number, 990.0 + number, [(0, Sample(990.0 + number, drift_ms))])
    kept.due()
    kept.keep()


def _heard(root: Path) -> list[float]:
    """What a sidecar that begins finds: it takes a file that is neither for none."""
    return [
        value for values, _ in _live(root).history.columns().values() for value in values if value == value
    ]


def _queue(root: Path) -> QueueFile:
    return QueueFile(root / "state", 3600.0, now=lambda: 0.0, wall=lambda: 1000.0)


def _titles(root: Path) -> list[str]:
    return [waiting.message.title for waiting in _queue(root).pending("robot")]


def _put(root: Path, *titles: str) -> None:
    """Accept each message that is not there yet, as the bridge does: one after the other."""
    queue = _queue(root)
    for title in titles:
        waiting = list(queue.pending("robot"))
        if title not in [one.message.title for one in waiting]:
            queue.keep("robot", [*waiting, Waiting(0.0, Message(title, "page", True, title, "text"))])


KINDS = {
    "tune --apply": Kind(lambda root: grow(root, "etc/systemd/system/\nrun/"), _apply, _tuned),
    "tune --apply over another's": Kind(_others, _apply, _tuned),
    "tune --revert": Kind(
        lambda root: (grow(root, "etc/systemd/system/\nrun/"), _apply(root)), _revert, _tuned
    ),
    "tune --revert to another's": Kind(lambda root: (_others(root), _apply(root)), _revert, _tuned),
    "tune --congestion --apply": Kind(_kernel, _congest, _running),
    "tune --congestion --revert": Kind(lambda root: (_kernel(root), _congest(root)), _decongest, _running),
    "checkpoint": Kind(_counting, _count, _count),
    "history": Kind(
        lambda root: _hear(root, 1.0),
        lambda root: _hear(root, 2.0, 3.0),
        _heard,
        lambda root: "" if _heard(root) in ([1.0], [2.0, 3.0]) else "neither the old history nor the new one",
    ),
    "queue": Kind(
        lambda root: _put(root, "first"),
        lambda root: _put(root, "second", "third"),
        _titles,
        lambda root: "" if _titles(root)[:1] == ["first"] else "what was accepted is lost",
    ),
}


class Scene:
    """One kind, prepared once: each play begins with a copy."""

    def __init__(self, name: str, folder: Path) -> None:
        self._kind = KINDS[name]
        self._prepared, self._killed = folder / "prepared", folder / "killed"
        self._prepared.mkdir(parents=True)
        self._kind.prepare(self._prepared)
        whole = self._copy(folder / "whole")
        self._kind.run(whole)
        self._wanted = self._kind.outcome(whole)
        self.writes = self._run_and_kill(1 << 30) or 0

    def play(self, number: int) -> str:
        """Kill it at a write, from 1 to `writes`, and run it again. Returns what is wrong then, "" for nothing."""
        if self._run_and_kill(number) is not None:
            return "it was not killed"
        if wrong := self._kind.kept(self._killed):
            return wrong
        try:
            self._kind.run(self._killed)
            found = self._kind.outcome(self._killed)
        except (Exception, AssertionError) as error:
            return f"the second run: {error}"
        strays = [name for name in snapshot(self._killed) if _STRAY.search(name)]
        return f"{strays} stray" if strays else "" if found == self._wanted else f"{found} differs"

    def _run_and_kill(self, number: int) -> int | None:
        self._copy(self._killed)
        return killed_at(number, self._killed, lambda: bool(self._kind.run(self._killed)) and 0)

    def _copy(self, to: Path) -> Path:
        shutil.rmtree(to, ignore_errors=True)
        return shutil.copytree(self._prepared, to, symlinks=True)
