"""What the device spends itself on, taken from the host readers' families. What the machine lacks is not there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from prometheus_client.core import Metric

READINGS = 12
"""Readings over which the share of throttled periods is reckoned: some ten seconds."""
ONE = {
    "omni_server_cpu_quota_cores": "quota_cores",
    "omni_device_memory_bytes": "memory_total_bytes",
    "omni_device_memory_available_bytes": "memory_available_bytes",
    "jetson_gpu_load_ratio": "gpu_load",
}
"""Families of which the first value is shown, as what."""


class Device:
    """The newest readings."""

    def __init__(self) -> None:
        self._periods: deque[tuple[float, float]] = deque(maxlen=READINGS)
        self._families: dict[str, Metric] = {}

    def take(self, families: Iterable[Metric]) -> None:
        """Take what the readers said now."""
        self._families = {family.name: family for family in families}
        periods, stopped = (
            self._first(name) for name in ("omni_server_cpu_periods", "omni_server_cpu_throttled_periods")
        )
        if periods is None or stopped is None or (self._periods and periods < self._periods[-1][0]):
            self._periods.clear()
        if periods is not None and stopped is not None:
            self._periods.append((periods, stopped))

    def shown(self) -> dict[str, Any]:
        """Return the readings as JSON values."""
        found: dict[str, Any] = {
            key: value for name, key in ONE.items() if (value := self._first(name)) is not None
        }
        if len(self._periods) > 1:
            (periods, stopped), (periods_now, stopped_now) = self._periods[0], self._periods[-1]
            found["throttled_share"] = round((stopped_now - stopped) / max(periods_now - periods, 1.0), 4)
        limits = {
            labels["zone"]: value
            for labels, value in self._rows("jetson_thermal_trip_celsius")
            if labels["trip"] == "passive"
        }
        heat = [
            {"zone": labels["zone"], "celsius": value}
            | ({"limit_celsius": limits[labels["zone"]]} if labels["zone"] in limits else {})
            for labels, value in self._rows("jetson_thermal_celsius")
        ]
        power = [
            {"rail": labels["rail"], "watts": value}
            for labels, value in self._rows("jetson_rail_power_watts")
        ]
        if "jetson_throttle_alert" in self._families:
            found["slowed_by"] = [
                labels["block"] for labels, value in self._rows("jetson_throttle_alert") if value > 0
            ]
        if "jetson_soctherm_oc_events" in self._families:
            found["overcurrents"] = sum(value for _, value in self._rows("jetson_soctherm_oc_events"))
        if heat:
            found["heat"] = sorted(heat, key=lambda zone: -zone["celsius"])
        if power:
            found["power"] = power
        for labels, _ in self._rows("jetson_nvpmodel_info"):
            found["power_mode"] = labels["name"] or labels["id"]
        return found

    def _rows(self, name: str) -> list[tuple[dict[str, str], float]]:
        family = self._families.get(name)
        return [(sample.labels, sample.value) for sample in family.samples] if family else []

    def _first(self, name: str) -> float | None:
        return next((value for _, value in self._rows(name)), None)
