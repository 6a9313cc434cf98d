"""What systemd says of the model server's unit: state, start, restarts, and the CPU quota it was told to apply."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from omniwatch.settings import Settings
from omniwatch.system.dbus import Bus, BusError, Value

_MANAGER = "org.freedesktop.systemd1"
_UNIT, _SERVICE = f"{_MANAGER}.Unit", f"{_MANAGER}.Service"
_STATES = ("active", "reloading", "inactive", "failed", "activating", "deactivating")
_NO_QUOTA = 2**64 - 1
_WANTED = [
    (_UNIT, "LoadState"),
    (_UNIT, "ActiveState"),
    (_SERVICE, "NRestarts"),
    (_SERVICE, "CPUQuotaPerSecUSec"),
    (_SERVICE, "ExecMainStartTimestampMonotonic"),
]


class Reader:
    """The metric families `omni_server_unit_*`; on a machine without systemd only that it is not up.

    `clock` gives seconds since the epoch, `monotonic` the kernel's CLOCK_MONOTONIC, which systemd's time stamps are of.
    """

    def __init__(
        self,
        settings: Settings,
        root: Path = Path("/"),
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._unit = settings.server.unit
        self._clock = clock
        self._monotonic = monotonic
        self._address = root / "run/dbus/system_bus_socket"
        self._booted = root / "run/systemd/system"
        self._error: BusError | None = None
        self._bus: Bus | None = None

    def collect(self) -> Iterable[Metric]:
        """Ask over the bus, once more over a new connection where the old one is broken.

        Raises BusError where the machine has systemd, or a bus, and there is no answer.
        """
        known = self._properties()
        up = GaugeMetricFamily("omniwatch_systemd_up", "1 while systemd answers on the system bus.")
        up.add_metric([], float(known is not None))
        yield up
        if known and known.get((_UNIT, "LoadState")) == "loaded":
            yield from _families(self._unit, known, self._clock() - self._monotonic())
        if known is None and self._error and (self._booted.is_dir() or self._address.exists()):
            raise self._error

    def _properties(self) -> dict[tuple[str, str], Value] | None:
        for _ in range(2 if self._bus else 1):
            try:
                self._bus = self._bus or Bus(self._address)
                return self._bus.properties(_MANAGER, object_path(self._unit), _WANTED)
            except BusError as error:
                self._bus, self._error = None, error
        return None


def start_of(unit: str, root: Path = Path("/")) -> tuple[str, str]:
    """Return whether systemd has the unit (loaded, masked, not-found), and whether it starts with the device (enabled, disabled …); ""
    where it does not say. Raises BusError.
    """
    bus = Bus(root / "run/dbus/system_bus_socket")
    try:
        known = bus.properties(_MANAGER, object_path(unit), [(_UNIT, "LoadState"), (_UNIT, "UnitFileState")])
    finally:
        bus.close()
    return str(known.get((_UNIT, "LoadState"), "")), str(known.get((_UNIT, "UnitFileState"), ""))


def object_path(unit: str) -> str:
    """The unit's object on the bus: every character but letters and digits stands as _ and two hex digits."""
    safe = "".join(
        c if c.isascii() and c.isalnum() and not (place == 0 and c.isdigit()) else f"_{ord(c):02x}"
        for place, c in enumerate(unit)
    )
    return f"/org/freedesktop/systemd1/unit/{safe}"


def _families(unit: str, known: dict[tuple[str, str], Value], boot_t: float) -> Iterable[Metric]:
    """Return the families of a unit; `boot_t` is when CLOCK_MONOTONIC was 0, in seconds since the epoch."""
    now = known.get((_UNIT, "ActiveState"))
    state = GaugeMetricFamily(
        "omni_server_unit_state", "1 for the state systemd has the unit in.", labels=["unit", "state"]
    )
    for name in _STATES:
        state.add_metric([unit, name], float(name == now))
    yield state
    # Not the wall clock's time stamp: that of a start before the clock was set, as at each boot of a board without a battery, is wrong.
    started_us = known.get((_SERVICE, "ExecMainStartTimestampMonotonic"))
    if isinstance(started_us, int) and started_us:
        start = GaugeMetricFamily(
            "omni_server_unit_start_time_seconds",
            "When the unit's main process was started last, in seconds since the epoch.",
            labels=["unit"],
        )
        start.add_metric([unit], round(boot_t + started_us / 1e6))
        yield start
    restarts = known.get((_SERVICE, "NRestarts"))
    if isinstance(restarts, int):
        counter = CounterMetricFamily(
            "omni_server_unit_restarts",
            "How often systemd started the unit again by itself.",
            labels=["unit"],
        )
        counter.add_metric([unit], restarts)
        yield counter
    quota = known.get((_SERVICE, "CPUQuotaPerSecUSec"))
    if now == "active" and isinstance(quota, int) and quota != _NO_QUOTA:
        asked = GaugeMetricFamily(
            "omni_server_cpu_quota_asked_cores",
            "CPUs that the unit's CPUQuota= allows, whether the kernel applies it or not.",
            labels=["unit"],
        )
        asked.add_metric([unit], quota / 1e6)
        yield asked
