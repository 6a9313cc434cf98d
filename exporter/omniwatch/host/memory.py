"""The device's memory, which on a Jetson CPUs and GPU share, and whether the kernel counts pressure stalls."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric

from omniwatch.settings import Settings
from omniwatch.system.sysfs import read_text, to_int

_FAMILIES = {
    "MemTotal:": ("omni_device_memory_bytes", "Memory of the device, CPUs' and GPU's together."),
    "MemAvailable:": (
        "omni_device_memory_available_bytes",
        "Memory that can be had without swapping, reclaimable caches included.",
    ),
}


def total_bytes(root: Path = Path("/")) -> int | None:
    """Return the device's memory; None where the kernel does not say."""
    return total_of(read_text(root / "proc/meminfo") or "")


def total_of(meminfo: str) -> int | None:
    """Return the memory that /proc/meminfo states in these words; None where it does not."""
    return _parsed(meminfo).get("MemTotal:")


def _parsed(meminfo: str) -> dict[str, int]:
    found = {}
    for line in meminfo.splitlines():
        words = line.split()
        if len(words) == 3 and words[0] in _FAMILIES and (kilo := to_int(words[1])) is not None:
            found[words[0]] = kilo * 1024
    return found


class Reader:
    """The families `omni_device_memory_*` and `omni_psi_available`."""

    def __init__(self, settings: Settings, root: Path = Path("/")) -> None:
        self._root = root

    def collect(self) -> Iterable[Metric]:
        """Read what is there now. Raises OSError where the memory cannot be read, which every kernel has."""
        found = _parsed(read_text(self._root / "proc/meminfo") or "")
        for key, value in found.items():
            family = GaugeMetricFamily(*_FAMILIES[key])
            family.add_metric([], value)
            yield family
        psi = GaugeMetricFamily(
            "omni_psi_available", "1 where the kernel counts pressure stalls (a Jetson's own kernels do not)."
        )
        # The file can exist and yet refuse to be read: psi=1 is then missing from the kernel's command line.
        psi.add_metric([], float(read_text(self._root / "proc/pressure/cpu") is not None))
        yield psi
        missing = [key.rstrip(":") for key in _FAMILIES if key not in found]
        if missing:
            raise OSError(f"{self._root / 'proc/meminfo'}: no {' and no '.join(missing)}")
