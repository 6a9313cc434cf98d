"""A Jetson's own signals from sysfs: GPU, rails, temperatures, throttling, power mode, memory. No root, no subprocess.

Nodes move between JetPack 5, 6 and 7, appear late in the boot and go away while a block is powered down. So each scrape
looks for them anew; a missing node is absent from the metrics, not 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from omniwatch.settings import Settings
from omniwatch.system.sysfs import names, read_int, read_text, to_int

_GPU_NODE_NAMES = {"gv11b", "gp10b", "ga10b", "gb10b", "gpu"}
_GPU_WITHOUT_DEVFREQ = (
    "sys/devices/platform/gpu.0",
    "sys/devices/gpu.0",
    "sys/devices/platform/bus@0/17000000.gpu",
    "sys/devices/platform/17000000.ga10b",
)
_LOWEST_TRUE_CELSIUS = -200
"""A sensor whose block is switched off reads -256 degrees."""

_Trips = dict[str, float]


def overcurrents(chip: str | Path) -> Iterator[tuple[str, int | None]]:
    """Yield the counts of soctherm_oc's chip: how often hardware throttled, by the kind (oc1, oc2, oc3)."""
    for entry in names(chip):
        if entry.startswith("oc") and entry.endswith("_event_cnt"):
            yield entry.removesuffix("_event_cnt"), read_int(f"{chip}/{entry}")


class Reader:
    """The metric families `jetson_*`; none of them on a machine that is no Jetson."""

    def __init__(self, settings: Settings, root: Path = Path("/")) -> None:
        self._root = f"{root}".rstrip("/")
        self._trips: dict[tuple[str, str], _Trips] = {}

    def collect(self) -> Iterable[Metric]:
        """Read what is there now."""
        if not self._is_jetson():
            return
        yield from self._gpu()
        yield from self._hwmon()
        yield from self._thermal()
        yield from self._cooling()
        yield from self._power_mode()
        yield from self._memory_and_cores()

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _is_jetson(self) -> bool:
        compatible = read_text(self._at("proc/device-tree/compatible")) or ""
        return (
            "nvidia,tegra" in compatible
            or read_text(self._at("sys/devices/soc0/family")) == "Tegra"
            or read_text(self._at("etc/nv_tegra_release")) is not None
        )

    def _gpu(self) -> Iterator[Metric]:
        for name in names(self._at("sys/class/devfreq")):
            node = self._at(f"sys/class/devfreq/{name}")
            if read_text(f"{node}/device/of_node/name") in _GPU_NODE_NAMES:
                yield from _gauges(
                    "jetson_gpu_frequency_hertz", "The GPU's clock.", [], {(): read_int(f"{node}/cur_freq")}
                )
                device = f"{node}/device"
                break
        else:
            device = next((d for d in map(self._at, _GPU_WITHOUT_DEVFREQ) if Path(d, "load").exists()), "")
        load = read_int(f"{device}/load") if device else None
        yield from _gauges(
            "jetson_gpu_load_ratio",
            "Share of time the GPU was busy.",
            [],
            {(): None if load is None else load / 1000},
        )

    def _hwmon(self) -> Iterator[Metric]:
        watts: dict[tuple[str, ...], float | None] = {}
        alarms: dict[tuple[str, ...], float | None] = {}
        events: dict[tuple[str, ...], float | None] = {}
        for name in names(self._at("sys/class/hwmon")):
            chip = self._at(f"sys/class/hwmon/{name}")
            kind = read_text(f"{chip}/name")
            if kind == "ina3221":
                for channel in range(1, 4):
                    _read_rail(chip, channel, watts, alarms)
            elif kind == "soctherm_oc":
                events |= {(name,): count for name, count in overcurrents(chip)}
        yield from _gauges(
            "jetson_rail_power_watts",
            "Power drawn from one rail; the rails' sum is not what the board draws.",
            ["rail"],
            watts,
        )
        yield from _gauges(
            "jetson_rail_alarm",
            "1 while the rail's current is over its limit (max: average, crit: instantaneous).",
            ["rail", "limit"],
            alarms,
        )
        counter = CounterMetricFamily(
            "jetson_soctherm_oc_events",
            "Throttling by hardware: oc1 under-voltage, oc2 average over-current, oc3 instantaneous over-current.",
            labels=["oc"],
        )
        for labels, value in events.items():
            if value is not None:
                counter.add_metric(labels, value)
        if counter.samples:
            yield counter

    def _thermal(self) -> Iterator[Metric]:
        now: dict[tuple[str, ...], float | None] = {}
        trips: dict[tuple[str, ...], float | None] = {}
        for name in names(self._at("sys/class/thermal")):
            if not name.startswith("thermal_zone"):
                continue
            directory = self._at(f"sys/class/thermal/{name}")
            kind, milli = read_text(f"{directory}/type"), read_int(f"{directory}/temp")
            if kind is None or milli is None or milli / 1000 < _LOWEST_TRUE_CELSIUS:
                continue
            # One name for a zone on every release: "GPU-therm" and "gpu-thermal" are "gpu".
            zone = kind.lower().removesuffix("-thermal").removesuffix("-therm")
            now[(zone,)] = milli / 1000
            for trip, celsius in self._trip_points(directory, kind).items():
                trips[zone, trip] = celsius
        yield from _gauges("jetson_thermal_celsius", "Temperature of a zone.", ["zone"], now)
        yield from _gauges(
            "jetson_thermal_trip_celsius",
            "Lowest temperature at which the kernel throttles (passive) or switches off (critical).",
            ["zone", "trip"],
            trips,
        )

    def _trip_points(self, directory: str, kind: str) -> _Trips:
        known = self._trips.get((directory, kind))
        if known is not None:
            return known
        found: _Trips = {}
        for name in names(directory):
            if name.startswith("trip_point_") and name.endswith("_type"):
                trip, milli = (
                    read_text(f"{directory}/{name}"),
                    read_int(f"{directory}/{name.removesuffix('type')}temp"),
                )
                if trip in ("passive", "critical") and milli is not None and milli > 0:
                    found[trip] = min(found.get(trip, milli / 1000), milli / 1000)
        self._trips[directory, kind] = found
        return found

    def _cooling(self) -> Iterator[Metric]:
        states: dict[tuple[str, ...], float | None] = {}
        for name in names(self._at("sys/class/thermal")):
            if name.startswith("cooling_device"):
                kind = read_text(self._at(f"sys/class/thermal/{name}/type"))
                if kind and kind.endswith("-alert"):
                    block = kind.removesuffix("-alert").removesuffix("-throttle")
                    states[(block,)] = read_int(self._at(f"sys/class/thermal/{name}/cur_state"))
        yield from _gauges(
            "jetson_throttle_alert",
            "Above 0 while the kernel says that this block is throttled for its heat.",
            ["block"],
            states,
        )

    def _power_mode(self) -> Iterator[Metric]:
        number = to_int((read_text(self._at("var/lib/nvpmodel/status")) or "").rpartition(":")[2])
        if number is None:
            return
        known = _power_modes(read_text(self._at("etc/nvpmodel.conf")) or "")
        family = GaugeMetricFamily("jetson_nvpmodel_info", "The power mode.", labels=["id", "name"])
        family.add_metric([str(number), known.get(number, "")], 1)
        yield family

    def _memory_and_cores(self) -> Iterator[Metric]:
        for line in (read_text(self._at("proc/meminfo")) or "").splitlines():
            if line.startswith("NvMapMemUsed:"):
                kilo = to_int(line.split()[1])
                yield from _gauges(
                    "jetson_nvmap_used_bytes",
                    "Memory the GPU's processes hold, all together; it is shared with the CPUs.",
                    [],
                    {(): None if kilo is None else kilo * 1024},
                )
        online = read_text(self._at("sys/devices/system/cpu/online"))
        yield from _gauges(
            "jetson_cpus_online",
            "CPU cores that the power mode leaves on.",
            [],
            {(): _cores(online) if online else None},
        )
        release = (read_text(self._at("etc/nv_tegra_release")) or "").partition("\n")[0]
        if release:
            family = GaugeMetricFamily("jetson_l4t_info", "NVIDIA's Linux release.", labels=["release"])
            family.add_metric([_release(release)], 1)
            yield family


def _read_rail(
    chip: str,
    channel: int,
    watts: dict[tuple[str, ...], float | None],
    alarms: dict[tuple[str, ...], float | None],
) -> None:
    rail = read_text(f"{chip}/in{channel}_label")
    millivolts = read_int(f"{chip}/in{channel}_input")
    milliamperes = read_int(f"{chip}/curr{channel}_input")
    if not rail or rail == "NC" or millivolts is None or milliamperes is None:
        return
    watts[(rail,)] = millivolts * milliamperes / 1e6
    for limit in ("max", "crit"):
        alarms[rail, limit] = read_int(f"{chip}/curr{channel}_{limit}_alarm")


def _gauges(
    name: str, help_text: str, labels: list[str], values: dict[tuple[str, ...], float | None]
) -> Iterator[Metric]:
    family = GaugeMetricFamily(name, help_text, labels=labels)
    for label_values, value in values.items():
        if value is not None:
            family.add_metric(label_values, value)
    if family.samples:
        yield family


def _power_modes(config: str) -> dict[int, str]:
    """Names by number, from lines such as `< POWER_MODEL ID=0 NAME=MAXN >`."""
    modes = {}
    for line in config.splitlines():
        words = dict(word.partition("=")[::2] for word in line.strip("<> ").split() if "=" in word)
        number = to_int(words.get("ID"))
        if "POWER_MODEL" in line and number is not None and "NAME" in words:
            modes[number] = words["NAME"]
    return modes


def _cores(online: str) -> int:
    """Count a list such as "0-3,6"."""
    count = 0
    for part in online.split(","):
        first, _, last = part.partition("-")
        count += int(last or first) - int(first) + 1
    return count


def _release(line: str) -> str:
    """`# R36 (release), REVISION: 4.4, GCID: …` as "36.4.4"."""
    major, _, rest = line.strip("# ").partition(" ")
    revision = rest.partition("REVISION:")[2].partition(",")[0].strip()
    return f"{major.removeprefix('R')}.{revision}".rstrip(".")
