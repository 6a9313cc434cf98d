"""Service discovery for Prometheus and vmagent: a fleet as a document for `file_sd`, or served for `http_sd`."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from omniwatch.centre.inventory import Inventory, InventoryError, load
from omniwatch.web import READ, Route, WsgiApp, routed
from omniwatch.web.origin import guarded
from omniwatch.web.response import Response

log = logging.getLogger(__name__)

_Stamp = tuple[int, int, int]


def targets(inventory: Inventory) -> list[dict[str, Any]]:
    """Return a group for each device, in the order of the file: where it is scraped, and its labels."""
    groups = []
    for device in inventory.devices:
        target = device.target
        labels = device.labels
        if target.scheme != "http":
            labels["__scheme__"] = target.scheme
        if target.path != "/metrics":
            labels["__metrics_path__"] = target.path
        groups.append({"targets": [target.address], "labels": labels})
    return groups


def document(inventory: Inventory) -> str:
    """Write the groups as JSON, a line each, so that a diff shows what changed."""
    lines = ",\n".join(json.dumps(group, ensure_ascii=False) for group in targets(inventory))
    return f"[\n{lines}\n]\n" if lines else "[]\n"


class Catalogue:
    """A fleet file as it was when it last held.

    It is looked at whenever it is asked for and read anew when it changed. A file that does not hold, or is gone,
    changes nothing: Prometheus, which forgets its targets when it restarts, would else lose the fleet to a typing mistake.
    Raises InventoryError when it is made with a file that does not hold. Called from several threads.
    """

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        self._path = path
        self._now = now
        self._lock = threading.Lock()
        self._stamp = _stamp(path)
        self._inventory = load(path)
        self._text = document(self._inventory)
        self._read_t = now()
        self._error = ""
        self._unread = False

    def text(self) -> str:
        """Return the document of the newest state that held."""
        with self._lock:
            self._look()
            return self._text

    def verdict(self) -> tuple[bool, str]:
        """Return whether the file as it is now is the one in use, and a line that says why not."""
        with self._lock:
            self._look()
            return not self._error, self._error or f"{len(self._inventory.devices)} devices"

    def collect(self) -> Iterator[Metric]:
        """Return its families, for a registry."""
        well, _ = self.verdict()
        yield GaugeMetricFamily(
            "omniwatch_fleet_devices", "Devices in the fleet file in use.", len(self._inventory.devices)
        )
        yield GaugeMetricFamily(
            "omniwatch_fleet_last_reload_successful",
            "Whether the fleet file in use is the one on the disk.",
            float(well),
        )
        yield GaugeMetricFamily(
            "omniwatch_fleet_last_reload_success_timestamp_seconds",
            "When the fleet file in use was read.",
            self._read_t,
        )

        off = GaugeMetricFamily(
            "omniwatch_fleet_device_off",
            "Whether the fleet file's hours say that the device is off now.",
            labels=["device"],
        )
        now = datetime.fromtimestamp(self._now(), self._inventory.zone)
        for device in self._inventory.devices:
            if device.hours:
                off.add_metric([device.name], float(not device.is_on(now)))
        yield off

    def _look(self) -> None:
        stamp = _stamp(self._path)
        if stamp == self._stamp and not self._unread:
            return
        logged = self._error if stamp == self._stamp else ""
        self._stamp = stamp
        try:
            self._inventory = load(self._path)
        except InventoryError as error:
            self._error = str(error)
            # A file may become readable while nothing that its stamp tells changes.
            self._unread = isinstance(error.__cause__, OSError)
            if self._error != logged:
                log.warning(
                    "the fleet file does not hold; the last one stays",
                    extra={"fields": {"error": self._error}},
                )
            return
        self._unread = False
        self._text, self._read_t, self._error = document(self._inventory), self._now(), ""
        log.info("fleet file read", extra={"fields": {"devices": len(self._inventory.devices)}})


def make_app(
    catalogue: Catalogue, hosts: Iterable[str] = (), registry: CollectorRegistry | None = None
) -> WsgiApp:
    """Return the web side: `/targets` for http_sd, and what tells how it does. `hosts` are the names that /targets answers by,
    beside addresses, localhost and the host's own name. What else `registry` has is shown, too.
    """
    registry = registry or CollectorRegistry()
    registry.register(catalogue)

    def verdict(environ: dict[str, Any]) -> Response:
        well, why = catalogue.verdict()
        return Response("200 OK" if well else "503 Service Unavailable", f"{why}\n".encode())

    def index(environ: dict[str, Any]) -> Response:
        return Response("200 OK", b"/targets\n/metrics\n/-/healthy\n/-/ready\n")

    def targets(environ: dict[str, Any]) -> Response:
        return Response("200 OK", catalogue.text().encode(), "application/json")

    def known() -> Iterable[str]:
        return hosts

    return routed(
        {
            "/": Route(READ, guarded(index, known)),
            "/targets": Route(READ, guarded(targets, known)),
            "/metrics": Route(
                READ, lambda environ: Response("200 OK", generate_latest(registry), CONTENT_TYPE_LATEST)
            ),
            "/-/healthy": Route(READ, lambda environ: Response("200 OK", b"healthy\n")),
            "/-/ready": Route(READ, verdict),
        }
    )


def _stamp(path: Path) -> _Stamp | None:
    """Return what changes when a file is written or replaced; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
