"""The centre's rules, evaluated by Prometheus and by vmalert over the same devices; and Prometheus as a centre that takes late samples."""

from __future__ import annotations

import json
import time
import urllib.parse
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
import yaml

from helpers.fleet_uplinks import CLEAR, Running, joined
from helpers.waiting import wait_until
from omniwatch.bundle import render
from omniwatch.desk.child_process import ChildProcess, free_port, get, program
from omniwatch.settings import Settings

OUTAGE_S = 20
FLEET = msgspec.structs.replace(
    Settings().fleet,
    evaluation_s=1,
    rule_delay_s=1,
    silent_after_s=10,
    held_after_s=5,
    clock_skew_for_s=4,
)


def firing(service: ChildProcess) -> set[tuple[str, str]]:
    """Return the alerts that fire and their devices; both engines answer alike."""
    alerts = json.loads(get(f"{service.url}/api/v1/alerts"))["data"]["alerts"] or []
    return {
        (one.get("name") or one["labels"]["alertname"], one["labels"].get("device", ""))
        for one in alerts
        if one["state"] == "firing"
    }


class Centres:
    """Prometheus, and VictoriaMetrics with vmalert, with the same rules."""

    def __init__(self, run: Running) -> None:
        self._run = run
        bundle = run.directory / "bundle"
        render.write(render.render(msgspec.structs.replace(Settings(), fleet=FLEET)), bundle)
        self.store = run.victoria("-search.maxStalenessInterval=10s")
        self.vmalert = self._vmalert(bundle)
        self.prometheus = self._prometheus(bundle / "deploy/fleet/centre-prometheus.yml")

    def _vmalert(self, bundle: Path) -> ChildProcess:
        port = free_port()
        argv = [
            program("vmalert"),
            f"-rule={bundle / 'alerts/fleet.rules.yaml'}",
            f"-rule={bundle / 'deploy/fleet/centre-held.rules.yaml'}",
            "-evaluationInterval=1s",
            f"-datasource.url={self.store.url}",
            f"-remoteWrite.url={self.store.url}",
            f"-remoteRead.url={self.store.url}",
            f"-notifier.url=http://127.0.0.1:{free_port()}",
            f"-httpListenAddr=127.0.0.1:{port}",
        ]
        return self._run.start("vmalert", argv, port, "/health")

    def _prometheus(self, config: Path) -> ChildProcess:
        settings = yaml.safe_load(config.read_text())
        del settings["alerting"]
        config.write_text(yaml.safe_dump(settings))
        port = free_port()
        argv = [
            program("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={self._run.directory / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--web.enable-remote-write-receiver",
            "--log.level=warn",
        ]
        return self._run.start("prometheus", argv, port, "/-/ready")


@pytest.fixture
def run(tmp_path):
    with ExitStack() as ending:
        yield Running(tmp_path, ending)


@pytest.mark.timeout(180)
def test_both_engines_say_the_same_of_the_same_devices(run):
    centres = Centres(run)
    ahead = run.given("ahead", ahead_s=60, alert=True)
    silent, paging = run.given("silent"), run.given("paging", alert=True)
    for given in (ahead, silent, paging):
        for kind, centre in (("vm", centres.store), ("prometheus", centres.prometheus)):
            run.agent(f"{kind}-{given.labels['device']}", joined(centre, given.address))
    expected = {("DeviceClockSkew", "ahead")}
    for engine in (centres.vmalert, centres.prometheus):
        wait_until(lambda engine=engine: firing(engine) == expected, 60, f"{engine.name}: {expected}")
    silent.open = paging.open = False
    expected = {
        ("AlertHeld", "paging"),
        ("DeviceClockSkew", "ahead"),
        ("DeviceSilent", "silent"),
        ("DeviceSilent", "paging"),
    }
    for engine in (centres.vmalert, centres.prometheus):
        wait_until(lambda engine=engine: expected <= firing(engine), 60, f"{engine.name}: {expected}")
    silent.open = paging.open = True
    for engine in (centres.vmalert, centres.prometheus):
        wait_until(
            lambda engine=engine: ("DeviceSilent", "silent") not in firing(engine),
            60,
            f"{engine.name}: heard again",
        )


@pytest.mark.timeout(120)
def test_a_prometheus_centre_takes_what_was_kept(run):
    centre = Centres(run).prometheus
    given = run.given("late")
    link = run.link("link", centre.url.removeprefix("http://"), CLEAR)
    run.agent("uplink", joined(link, given.address))

    def samples() -> int:
        query = urllib.parse.urlencode({"query": '{__name__=~"uplink:.+",device="late"}[5m]'})
        found = json.loads(get(f"{centre.url}/api/v1/query?{query}"))["data"]["result"]
        return min((len(one["values"]) for one in found), default=0)

    wait_until(lambda: samples() > 2, 30, "the first samples")
    link.stop()
    away = time.monotonic()
    wait_until(lambda: time.monotonic() > away + OUTAGE_S, OUTAGE_S + 5)
    link.start()
    kept = len(given.times)
    wait_until(lambda: samples() > kept, 80, "what is new")
    given.open = False
    wait_until(lambda: samples() == len(given.times), 40, "every sample")
