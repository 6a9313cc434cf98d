"""Sample in a moment what may take time from the model server: its CPU quota, heat and power, memory."""

from __future__ import annotations

from pathlib import Path

from omniwatch.core.samples import Sample
from omniwatch.host import cgroup
from omniwatch.host.jetson import overcurrents
from omniwatch.settings import Settings
from omniwatch.system.sysfs import names, pairs, read_int, read_text


class Sampler:
    """Reads a sample below `root`. What the machine lacks is absent, not 0."""

    def __init__(self, settings: Settings, root: Path = Path("/")) -> None:
        self._server, self._root = settings.server, root
        self._power_events: int | None = None

    def __call__(self, t: float, speaking: int) -> Sample:
        """Return what there is to read now, at t, while so many turns are being answered."""
        some = (
            (read_text(self._root / "proc/pressure/memory") or "").partition("\n")[0].rpartition("total=")[2]
        )
        vmstat = pairs(read_text(self._root / "proc/vmstat"))
        reclaims = [count for name, count in vmstat.items() if name.startswith("allocstall")]
        return Sample(
            t,
            speaking,
            self._throttled_s(),
            self._clock(),
            int(some) / 1e6 if some.isdecimal() else None,
            vmstat.get("pswpin"),
            sum(reclaims) if reclaims else None,
        )

    def _throttled_s(self) -> float | None:
        stopped = [group.usage().throttled_s for group in cgroup.locate(self._server, self._root)]
        known = [seconds for seconds in stopped if seconds is not None]
        return sum(known) if known else None

    def _clock(self) -> float | None:
        """Return the least share of a clock that is left while the kernel holds clocks down; None where it does not say whether."""
        held = [
            read_int(device / "cur_state")
            for device in self._all("sys/class/thermal", "cooling_device")
            if _slows(device)
        ]
        counts = [
            count
            for chip in self._all("sys/class/hwmon")
            if read_text(chip / "name") == "soctherm_oc"
            for _, count in overcurrents(chip)
        ]
        before, self._power_events = self._power_events, sum(filter(None, counts)) if counts else None
        if not held and not counts:
            return None
        more = before is not None and self._power_events is not None and self._power_events > before
        if not any(held) and not more:
            return 1.0
        pairs_of = [("cur_freq", "max_freq", path) for path in self._all("sys/class/devfreq")]
        pairs_of += [
            ("scaling_cur_freq", "cpuinfo_max_freq", path)
            for path in self._all("sys/devices/system/cpu/cpufreq", "policy")
        ]
        shares = [
            now / most
            for current, limit, path in pairs_of
            if (now := read_int(path / current)) and (most := read_int(path / limit))
        ]
        return min([1.0, *shares])

    def _all(self, folder: str, prefix: str = "") -> list[Path]:
        return [self._root / folder / name for name in names(self._root / folder) if name.startswith(prefix)]


def _slows(device: Path) -> bool:
    """Whether a cooling device cools by slower clocks (a fan does not)."""
    kind = (read_text(device / "type") or "").lower()
    return kind.endswith("-alert") or "freq" in kind or kind == "processor"
