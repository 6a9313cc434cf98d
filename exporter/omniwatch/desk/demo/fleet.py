"""Run the demonstration of a fleet: its devices are heard, a site falls silent, one page comes and goes."""

from __future__ import annotations

import queue
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import yaml

from omniwatch.bundle import features, render
from omniwatch.centre import inventory, status
from omniwatch.centre.query import Centre
from omniwatch.desk.child_process import ChildProcess, free_port, get, program
from omniwatch.desk.demo import DemoError, Step
from omniwatch.desk.demo.local_stack import LocalServers, Notice
from omniwatch.settings import Settings
from omniwatch.settings.fleet import Fleet
from omniwatch.system.errors import UserError

DEVICES = 12
"""All of one site."""
TIMES = Fleet(interval_s=1, flush_s=1, evaluation_s=2, rule_delay_s=0, silent_after_s=15)
"""In the field a device is silent after five minutes: a demonstration does not wait for that."""
GROUP_WAIT_S = 30.0
"""What falls silent together is one message: Alertmanager waits so long for the others."""
PATIENCE_S = 60.0
LOOK_S = 0.2
SILENT = "SiteSilent"
WINDOW_S = 60
Found = TypeVar("Found")


class FleetStack(LocalServers):
    """A simulated fleet and its centre (Prometheus, Alertmanager, a pager) on loopback, started by `with`."""

    def __init__(self, directory: Path, say: Callable[[str], None], seed: int = 1) -> None:
        self._directory, self._say = directory, say
        super().__init__()
        self.settings = msgspec.structs.replace(
            Settings(),
            fleet=TIMES,
            site=msgspec.structs.replace(Settings().site, alertmanager=f"127.0.0.1:{free_port()}"),
            receivers=msgspec.structs.replace(
                Settings().receivers, page_webhook_url=self.pager.url, group_interval_s=5
            ),
        )
        self._simulate = ["simulate", "fleet", str(DEVICES), f"--seed={seed}", "--outages=0", "--skewed=0"]

    def _start(self) -> None:
        # promtool is asked: it comes with Prometheus, and reads the same configuration.
        if not features.Tools(shutil.which).knows(features.OUT_OF_ORDER):
            raise UserError(f"--fleet: {features.OUT_OF_ORDER.lacks}")
        prometheus, alertmanager = program("prometheus"), program("prometheus-alertmanager", "alertmanager")
        folder = self._directory / "bundle/deploy/fleet"
        render.write(render.render(self.settings), self._directory / "bundle")
        self.devices = self._run("devices", [sys.executable, "-m", "omniwatch", *self._simulate], free_port())
        self.devices.await_ready("/")
        self._listed = inventory.parse(get(f"{self.devices.url}/fleet.yaml").decode()).devices
        job = {
            "job_name": "uplink",
            "scrape_interval": f"{TIMES.interval_s}s",
            "scrape_timeout": f"{TIMES.interval_s}s",
            "honor_labels": True,
            "http_sd_configs": [{"url": f"{self.devices.url}/targets"}],
        }
        centre = yaml.safe_load((folder / "centre-prometheus.yml").read_text(encoding="utf-8"))
        (folder / "demo.yml").write_text(
            yaml.safe_dump({**centre, "scrape_configs": [job]}), encoding="utf-8"
        )
        flags = [f"--config.file={folder / 'centre-alertmanager.yml'}", "--cluster.listen-address="]
        flags += [f"--storage.path={self._directory / 'alertmanager'}", "--log.level=warn"]
        port = int(self.settings.site.alertmanager.rpartition(":")[2])
        self._run("alertmanager", [alertmanager, *flags], port).await_ready("/-/ready")
        flags = [f"--config.file={folder / 'demo.yml'}", "--log.level=warn"]
        flags += [f"--storage.tsdb.path={self._directory / 'tsdb'}"]
        self.prometheus = self._run("prometheus", [prometheus, *flags], free_port())
        self.prometheus.await_ready("/-/ready")

    def _run(self, name: str, argv: list[str], port: int) -> ChildProcess:
        address = f"127.0.0.1:{port}"
        service = ChildProcess(
            name, [*argv, f"--web.listen-address={address}"], self._directory, f"http://{address}"
        )
        self._services.append(service)
        self._say(f"{name}: {service.url}")
        return service

    def states(self) -> list[status.DeviceStatus]:
        """Return what `omniwatch fleet status` shows. Raises QueryError."""
        ask = Centre(self.prometheus.url).instant
        return status.rows(ask, self._listed, time.time(), WINDOW_S, TIMES.silent_after_s, TIMES.interval_s)


class FleetDemo:
    """The course of it, through a started stack in real time. `show` gets the table of `omniwatch fleet status`."""

    def __init__(
        self,
        stack: FleetStack,
        show: Callable[[str], None],
        waiting: Callable[[str], None] = lambda what: None,
    ) -> None:
        self._stack, self._show, self._waiting = stack, show, waiting

    def run(self) -> Iterator[Step]:
        """Yield the steps as they happen. Raises DemoError when one does not come."""
        heard = self._await("every device to be heard", lambda: self._known(DEVICES, 0), 0)
        yield Step("devices heard", time.time(), f"{DEVICES} of {DEVICES}")
        self._table(heard)
        cut_t = time.time()
        self._stack.devices.stop()
        yield Step("site cut off", cut_t, "none of its devices answers any more")
        due_s = TIMES.silent_after_s + GROUP_WAIT_S
        page = self._await("the page", lambda: self._notice("firing"), due_s)
        yield Step("page received", page.received_t, f"{page.alert}: {page.annotations['description']}")
        self._table(self._await("the silence to show", lambda: self._known(DEVICES, DEVICES), 0))
        back_t = time.time()
        self._stack.devices.start()
        self._stack.devices.await_ready("/")
        yield Step("site is back", back_t)
        resolved = self._await("the end of the page", lambda: self._notice("resolved"), 0)
        yield Step("resolved", resolved.received_t)
        self._table(self._await("every device to be heard", lambda: self._known(DEVICES, 0), 0))

    def _table(self, rows: list[status.DeviceStatus]) -> None:
        ordered = sorted(rows, key=status.SORTS["state"])
        self._show(f"{status.table(ordered)}\n{status.summary(ordered)}")

    def _known(self, heard: int, silent: int) -> list[status.DeviceStatus] | None:
        rows = [row for row in self._stack.states() if row.last_seen_t is not None]
        return rows if len(rows) == heard and sum(row.state == "silent" for row in rows) == silent else None

    def _notice(self, state: str) -> Notice | None:
        """Return the page about the site, once it has this state; those of single devices are in the same message."""
        try:
            while True:
                notice = self._stack.pager.notices.get_nowait()
                if (notice.status, notice.alert) == (state, SILENT):
                    return notice
        except queue.Empty:
            return None

    def _await(self, what: str, look: Callable[[], Found | None], due_s: float) -> Found:
        deadline = time.monotonic() + due_s + PATIENCE_S
        while (found := look()) is None:
            if time.monotonic() > deadline:
                raise DemoError(f"{what}: not within {PATIENCE_S:.0f} s of when it was due")
            self._waiting(what)
            time.sleep(LOOK_S)
        return found
