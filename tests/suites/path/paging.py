"""Sidecars that follow servers on real paths, with a real Prometheus and Alertmanager, and who was paged."""

from __future__ import annotations

import json
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from omniwatch.desk.child_process import free_port
from omniwatch.desk.demo.local_stack import Stack
from omniwatch.system import atomic_write


class Devices(Stack):
    """One Prometheus and one Alertmanager for as many sidecars as there are servers; each is a device of its own."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, say=lambda line: None)
        self._targets: dict[str, str] = {}
        self._lock = threading.Lock()

    def _start(self) -> None:
        super()._start()
        config = self.directory / "bundle" / "deploy" / "prometheus" / "prometheus.yml"
        whole = msgspec.yaml.decode(config.read_bytes())
        self._list()
        named = {"files": [str(self.directory / "targets.json")], "refresh_interval": "1s"}
        whole["scrape_configs"] = [{"job_name": "omniwatch", "file_sd_configs": [named]}]
        config.write_bytes(msgspec.yaml.encode(whole))
        self.prometheus.process.send_signal(signal.SIGHUP)

    @contextmanager
    def watching(self, device: str, events: Path) -> Iterator[None]:
        """Have a sidecar follow an event file."""
        address = f"127.0.0.1:{free_port()}"
        place = self.directory / device
        place.mkdir()
        settings = msgspec.structs.replace(self.settings, sources=[f"tail:{events}"])
        config = place / "omniwatch.yaml"
        config.write_bytes(msgspec.yaml.encode(settings))
        words = [f"--config.file={config}", f"--state-dir={place}", f"--web.listen-address={address}"]
        sidecar = self.run(device, [sys.executable, "-m", "omniwatch", "exporter", *words], address)
        sidecar.await_ready("/-/healthy")
        self._list(**{device: address})
        try:
            yield
        finally:
            self._list(**{device: ""})
            sidecar.stop()

    def _list(self, **targets: str) -> None:
        with self._lock:
            self._targets |= targets
            told = [
                {"targets": [address], "labels": {"device": device}}
                for device, address in self._targets.items()
                if address
            ]
            atomic_write.replace(self.directory / "targets.json", json.dumps(told).encode())

    def paged(self, alert: str) -> set[str]:
        """Return the devices of which somebody was called by an alert."""
        found = set()
        while True:
            try:
                notice = self.pager.notices.get_nowait()
            except queue.Empty:
                return found
            if (notice.alert, notice.status) == (alert, "firing"):
                found.add(notice.labels["device"])
