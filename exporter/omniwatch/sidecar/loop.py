"""The sidecar: sources, stream table and checkpoint under one lock, used by the read loop and by each scrape."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from omniwatch.core.samples import Sample
from omniwatch.core.state import State
from omniwatch.core.streams import CLOCK_STEP_S, StreamTable
from omniwatch.core.turns import Judged, TurnsState
from omniwatch.explain.kept import KeptTurns
from omniwatch.ingest.intake import Intake, Saved
from omniwatch.ingest.removed_sources import RemovedSources
from omniwatch.live.feed import worst
from omniwatch.metrics.collector import collect
from omniwatch.metrics.snapshot import ScrapeSnapshot, stream_json
from omniwatch.settings import Settings, SettingsError
from omniwatch.sidecar import checkpoint, device_log, live
from omniwatch.sidecar.clock_step import WallClock, shift_streams
from omniwatch.sources import Source, SourceError
from omniwatch.system import leftovers
from omniwatch.system.errors import UserError
from omniwatch.system.log import LogThrottle

log = logging.getLogger(__name__)

STEP_BYTES = 128 * 1024
"""Read under the lock at once: some 600 events, about 2 ms."""
SCRAPE_BYTES = 512 * 1024
"""Read at most before a scrape is answered: what a device writes in half a minute."""
POLL_S = 0.1
"""A scrape reads first, so this is not how old its answer may be; it is how soon a rotation is noticed."""
CHECKPOINT_S = 5.0
"""How often progress is kept when nobody scrapes."""
SAMPLE_S = 1.0
"""Seconds between two samples of the device, while somebody is answered."""
HOST_S = 1.0
"""The machine's own signals are read at most so often; whoever asks in between gets the last ones."""
ALIVE_S = 10.0
"""A reader that has not come round for so long is stuck."""


def in_directory(state_dir: Path) -> Path:
    """Return the checkpoint's path in a state directory, made if need be. Raises OSError where it cannot be written."""
    state_dir.mkdir(parents=True, exist_ok=True)
    if not os.access(state_dir, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, "cannot be written", str(state_dir))
    return state_dir / "checkpoint"


class Saving(msgspec.Struct):
    """The checkpoint: positions and counts of one and the same moment."""

    state: State
    intakes: dict[str, Saved]
    turns: TurnsState = msgspec.field(default_factory=TurnsState)
    boot: str = ""
    ahead: float | None = None
    """Offset of `time.time()` over `time.monotonic()` in seconds when this was saved."""
    former: RemovedSources = msgspec.field(default_factory=RemovedSources)


class Sidecar(Collector):
    """Read all sources into one table and show it. `boot` is the kernel's boot id: a checkpoint with another is from before a reboot.

    `clock` gives seconds since the epoch, `monotonic` seconds that never step. `host` returns, for the settings of a
    start or a reload, what reads the machine's own signals.
    """

    def __init__(
        self,
        settings: Settings,
        sources: Iterable[Source],
        *,
        state_file: Path | None = None,
        boot: str = "",
        load_settings: Callable[[], tuple[Settings, list[Source]]] | None = None,
        host: Callable[[Settings], Callable[[], Iterable[Metric]]] = lambda settings: lambda: (),
        sampler: Callable[[Settings], Callable[[float, int], Sample]] | None = None,
        device_file: Path | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.table = StreamTable(settings)
        self.intakes = [Intake(source) for source in _by_name(sources).values()]
        self._former = RemovedSources()
        self._state_file = state_file
        self._boot = boot
        self._load_settings = load_settings
        self._make_host, self._host = host, host(settings)
        self._make_sampler, self._sampler = sampler, sampler and sampler(settings)
        self._device_file = device_file
        self._next_sample = 0.0
        self._turns = KeptTurns()
        self._clock = clock
        self._monotonic = monotonic
        self._wall = WallClock(clock, monotonic)
        self._lock = threading.RLock()
        history_file = None if state_file is None else state_file.with_name(live.NAME)
        self._live = live.Live(settings, history_file, self._lock, clock, monotonic)
        self._host_lock = threading.Lock()
        self._machine_said: list[Metric] | None = None
        self._machine_t = 0.0
        self._seldom = LogThrottle(monotonic)
        self._checkpoint_errors = 0
        self._next_checkpoint = 0.0
        self._kept = b""
        self._alive_t = monotonic()
        self._reload_ok, self._reload_t = True, clock()
        if state_file is not None:
            leftovers.remove(state_file)
            self._restore(state_file)
        self.table.turns.found = self._judged
        self._read_samples()

    def run(self, stop: threading.Event, alive: Callable[[], None] = lambda: None) -> None:
        """Read until `stop` is set; `alive` is called each time round."""
        while not stop.is_set():
            busy = self.step()
            alive()
            # A moment without the lock lets a waiting scrape in, however much there is to read.
            stop.wait(0.0005 if busy else POLL_S)
        with self._lock:
            self._save()
            self._live.due()
        self._live.keep()

    def step(self) -> bool:
        """Read a little of every source; return whether there was anything."""
        with self._lock:
            busy = self._read(STEP_BYTES)
            self._alive_t = self._monotonic()
            if busy and self._alive_t >= self._next_checkpoint:
                self._save()
            speaking = self.table.turns.speaking
            self._live.sample(self._view)
        self._live.keep()
        if speaking and self._sampler and not -SAMPLE_S <= self._alive_t - self._next_sample < 0:
            self._next_sample = self._alive_t + SAMPLE_S
            self._sample(self._sampler, speaking)
        return busy

    def _read_samples(self) -> None:
        """Take up the samples of the process before: a turn may be under way that began in its time."""
        if self._device_file is not None and self._device_file.exists():
            try:
                for sample in device_log.read(self._device_file):
                    self.table.turns.samples.add(sample)
            except UserError as error:
                log.warning("samples of the device cannot be read", extra={"fields": {"error": str(error)}})

    def _sample(self, sampler: Callable[[float, int], Sample], speaking: int) -> None:
        try:
            sample = sampler(self._clock(), speaking)
            with self._lock:
                self.table.turns.samples.add(sample)
            if self._device_file is not None:
                device_log.append(self._device_file, sample)
        except Exception as error:
            # A sensor that fails, or a full disk: reading goes on.
            if self._seldom("sample"):
                log.warning("the device was not sampled", extra={"fields": {"error": repr(error)}})

    def _read(self, budget: int) -> bool:
        busy = False
        step_s = self._wall.step_s()
        if step_s:
            self._live.clock_set(step_s)
        if step_s > -CLOCK_STEP_S and step_s:
            # Larger steps back are seen in the events themselves, and `settle` waits for these to be read.
            self.table.clock_set(step_s, in_order=not self._behind())
        for intake in self.intakes:
            if intake.step(self.table, budget):
                busy = True
                for other in self.intakes:
                    if other is not intake:
                        # One file may be followed by its path and by a pattern: a writer's number counts once in all.
                        other.sequence.learn(intake.sequence.writers)
            self._report(intake)
        behind = self._behind()
        self._wall.settle(self.table.state.streams.values(), behind=bool(behind))
        self.table.advance(self._clock(), behind)
        return busy

    def _behind(self) -> dict[str, float]:
        """Return the time of the newest event of each source that has more to read: its streams wait there."""
        return {
            intake.name: intake.counts.last_t
            for intake in self.intakes
            if intake.source.up and not intake.source.caught_up
        }

    def _report(self, intake: Intake) -> None:
        bad, intake.last_invalid = intake.last_invalid, None
        if bad is not None and self._seldom(f"invalid {intake.name}"):
            fields = {"source": intake.name, "reason": bad.reason, "detail": bad.detail}
            log.warning("a line is no event", extra={"fields": fields})
        if not intake.source.up and self._seldom(f"down {intake.name}"):
            fields = {"source": intake.name, "error": str(intake.source.error)}
            log.warning("source cannot be read; waiting for it", extra={"fields": fields})

    def collect(self) -> Iterator[Metric]:
        """Return the families of one scrape, of all that was written until now. For a prometheus_client registry."""
        with self._lock:
            self._read(SCRAPE_BYTES)
            # What a scrape has shown must not be counted again after a kill, nor be lost: it is kept first.
            self._save()
            families = list(collect(self._view()))
        yield from families
        yield from self._machine()

    def _machine(self) -> list[Metric]:
        """Return what the machine says, read at most once in HOST_S for scrapes and pages together."""
        with self._host_lock:
            said, now = self._machine_said, self._monotonic()
            if said is None or not 0 <= now - self._machine_t < HOST_S:
                self._machine_t = now
                said = self._machine_said = list(self._host())
            return said

    def _view(self) -> ScrapeSnapshot:
        return ScrapeSnapshot(
            self._clock(),
            self.table,
            self.intakes,
            self._reload_ok,
            self._reload_t,
            self._checkpoint_errors,
            self._behind(),
        )

    def live(self, cursor: str, packed: bool) -> bytes:
        """Return the live page's feed since a cursor as JSON, compressed if `packed`."""
        return self._live.answer(cursor, packed, self._view, self._machine)

    def _judged(self, judged: Judged) -> None:
        self._turns.take(judged)
        self._live.feed.judged(judged)
        stream, bad = self.table.state.streams.get(judged.stream), worst(judged)
        if stream is not None and bad is not None:
            stream.bad = bad

    def streams(self) -> list[dict[str, Any]]:
        """Return the live streams for people and programs, with their ids, as JSON values."""
        with self._lock:
            self._read(SCRAPE_BYTES)
            view = self._view()
            return [stream_json(stream, view) for stream in self.table.streams]

    def turns(self) -> bytes:
        """Return the newest bad turns, and the newest good ones, as JSON: records and verdicts, and no name that a client gave."""
        with self._lock:
            self._read(SCRAPE_BYTES)
            return self._turns.page(self.table.totals.turns_judged)

    def turn(self, number: int) -> bytes | None:
        """Return one judged turn as JSON, with the text that `explain` prints of it; None where it is not kept."""
        with self._lock:
            self._read(SCRAPE_BYTES)
            return self._turns.one(number, self.table.settings.streams.playout_buffer_ms / 1000)

    def ready(self) -> tuple[bool, str]:
        """Whether any source can be read, and if not why."""
        down = [f"{i.name}: {i.source.error}" for i in self.intakes if not i.source.up]
        return (True, "ready") if len(down) < len(self.intakes) else (False, "; ".join(down) or "no source")

    def healthy(self) -> tuple[bool, str]:
        """Whether the reader comes round."""
        age = self._monotonic() - self._alive_t
        return (True, "healthy") if age < ALIVE_S else (False, f"the reader has been stuck for {age:.0f} s")

    def reload(self) -> tuple[bool, str]:
        """Read the configuration anew; a bad one changes nothing but says so."""
        if self._load_settings is None:
            return True, "no configuration file in use"
        try:
            settings, sources = self._load_settings()
        except (SettingsError, SourceError) as error:
            self._reload_ok = False
            log.error(
                "configuration not reloaded, the old one stays", extra={"fields": {"error": str(error)}}
            )
            return False, str(error)
        with self._lock:
            self.table.configure(settings)
            self._replace_sources(sources)
            self._host, self._machine_said = self._make_host(settings), None
            self._live.history.configure(settings.alerts)
            self._sampler = self._make_sampler and self._make_sampler(settings)
            self._reload_ok, self._reload_t = True, self._clock()
        log.info("configuration reloaded")
        return True, "reloaded"

    def _replace_sources(self, sources: list[Source]) -> None:
        kept = {intake.name: intake for intake in self.intakes}
        self.intakes, new = [], []
        for name, source in _by_name(sources).items():
            if name in kept:
                source.close()
                self.intakes.append(kept.pop(name))
            else:
                new.append(Intake(source))
                self.intakes.append(new[-1])
        for intake in kept.values():
            self._former.keep(intake.name, intake.save())
            intake.source.close()
        self._former.hand_over(new)

    def _restore(self, path: Path) -> None:
        try:
            payload = checkpoint.load(path)
            saved = None if payload is None else msgspec.msgpack.decode(payload, type=Saving)
        except (OSError, checkpoint.CheckpointError, msgspec.DecodeError) as error:
            self._start_over(path, error)
            return
        if saved is None:
            return
        same_boot = saved.boot == self._boot
        new: list[Intake] = []
        try:
            for intake in self.intakes:
                if intake.name in saved.intakes:
                    intake.restore(saved.intakes.pop(intake.name), same_boot=same_boot)
                else:
                    new.append(intake)
            for name, left in saved.intakes.items():
                saved.former.keep(name, left)
            saved.former.hand_over(new)
        except SourceError as error:
            # Positions and table are of one moment: without one of them, none.
            for intake in self.intakes:
                intake.source.restore({})
            self.intakes = [Intake(intake.source) for intake in self.intakes]
            self._start_over(path, error)
            return
        self.table = StreamTable(self.table.settings, saved.state, saved.turns)
        self._former = saved.former
        if same_boot and saved.ahead is not None:
            self._wall.ahead = saved.ahead
        else:
            shift_streams(saved.state.streams.values(), self._clock(), 0.0)

    def _start_over(self, path: Path, error: Exception) -> None:
        self._checkpoint_errors += 1
        fields = {"file": str(path), "error": str(error)}
        log.error("checkpoint cannot be used, starting over", extra={"fields": fields})

    def _save(self) -> None:
        self._next_checkpoint = self._monotonic() + CHECKPOINT_S
        if self._state_file is None:
            return
        intakes = {intake.name: intake.save() for intake in self.intakes}
        # The clocks are read one after the other: what they are apart is never twice the same to the last digit.
        saving = Saving(
            self.table.state,
            intakes,
            self.table.turns.kept(),
            self._boot,
            round(self._wall.ahead, 2),
            self._former,
        )
        try:
            payload = msgspec.msgpack.encode(saving)
            # A scrape of a device that nobody speaks to is no reason to write to its flash.
            if payload != self._kept or not self._state_file.exists():
                checkpoint.save(self._state_file, payload)
                self._kept = payload
        except Exception as error:
            # The disk, or a value that cannot be kept: whichever it is, reading goes on and scrapes are answered.
            self._checkpoint_errors += 1
            if self._seldom("checkpoint"):
                fields = {"file": str(self._state_file), "error": str(error)}
                log.error("checkpoint not written", extra={"fields": fields})

    def close(self) -> None:
        """Let go of the sources."""
        for intake in self.intakes:
            intake.source.close()


def _by_name(sources: Iterable[Source]) -> dict[str, Source]:
    """Take a source that is written twice, as PATH and as tail:PATH, for one."""
    return {source.name: source for source in sources}
