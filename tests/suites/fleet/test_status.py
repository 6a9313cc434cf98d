"""`omniwatch fleet status` on a real VictoriaMetrics and a real Prometheus: the same table, whatever the engine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.fleet_servers import OMNIWATCH, Place, query, scraping
from helpers.waiting import wait_until
from omniwatch.centre import inventory
from omniwatch.desk.child_process import ChildProcess, get

COUNT = 12
SILENT_AFTER_S = 6
GROWN = "count(count_over_time(uplink:resumes_total[1m]) > 3)"


class Fleet:
    """A simulated fleet that both engines scrape each second."""

    def __init__(self, directory: Path, ending: ExitStack) -> None:
        place = Place(directory, ending)
        self.simulated = place.simulated(COUNT, "--outages=0", "--skewed=0")
        config = scraping(self.simulated)
        path = directory / "scrape.yml"
        path.write_text(yaml.safe_dump(config))
        self.engines = {
            "prometheus": place.prometheus(config),
            "victoria-metrics": place.victoria(f"-promscrape.config={path}"),
        }
        self.devices = inventory.parse(get(f"{self.simulated.url}/fleet.yaml").decode()).devices
        self.file = directory / "fleet.yaml"
        self.config = directory / "omniwatch.yaml"
        self.config.write_text(
            f"fleet: {{silent_after_s: {SILENT_AFTER_S}, evaluation_s: 1, inventory_file: {self.file}}}\n"
        )
        self.list(self.devices)

    def list(self, devices: list[inventory.Device]) -> None:
        self.file.write_text(inventory.dump(devices))

    def status(self, engine: str, *options: str) -> tuple[int, str]:
        done = subprocess.run(
            [*OMNIWATCH, "fleet", "status", f"--config.file={self.config}", f"--prometheus.url={self.url(engine)}", *options],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )  # fmt: skip
        assert done.stderr == ""
        return done.returncode, done.stdout

    def rows(self, engine: str) -> dict[str, dict[str, Any]]:
        return {row["device"]: row for row in json.loads(self.status(engine, "--json")[1])}

    def url(self, engine: str) -> str:
        return self.engines[engine].url


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with ExitStack() as ending:
        fleet = Fleet(tmp_path_factory.mktemp("status"), ending)
        for engine in fleet.engines.values():
            wait_until(lambda engine=engine: counted(engine, GROWN) == COUNT, what="scrapes of every device")
        yield fleet


def counted(engine: ChildProcess, expression: str) -> int:
    found = query(engine, expression)
    return int(found[0]["value"][1]) if found else 0


@pytest.mark.parametrize("engine", ["prometheus", "victoria-metrics"])
def test_every_device_is_shown_as_the_engine_knows_it(fleet, engine):
    fleet.list(fleet.devices)
    rows = fleet.rows(engine)
    assert set(rows) == {device.name for device in fleet.devices}
    for device in fleet.devices:
        row = rows[device.name]
        assert (row["site"], row["model"], row["release"]) == (device.site, device.model, device.release)
        assert row["listed"]
        assert abs(row["age_s"]) < SILENT_AFTER_S
        worst = float(
            query(fleet.engines[engine], f'max(max_over_time(uplink:drift_abs_ms:max{{device="{device.name}"}}[15m]))')[0]["value"][1]
        )  # fmt: skip
        assert 0 < row["worst_drift_ms"] <= worst
        assert row["rtt_p95_ms"] > 300


@pytest.mark.parametrize("engine", ["prometheus", "victoria-metrics"])
def test_a_device_that_was_never_seen_and_one_that_is_not_listed_are_told(fleet, engine):
    ghost = inventory.Device("ghost", "192.0.2.1", "site-000", "orin-64", "2026.11")
    fleet.list([*fleet.devices[1:], ghost])
    rows = fleet.rows(engine)
    assert (rows["ghost"]["state"], rows["ghost"]["last_seen_t"]) == ("never seen", None)
    assert not rows[fleet.devices[0].name]["listed"]
    code, text = fleet.status(engine, "--sort", "device")
    assert code == 1
    assert f"{fleet.devices[0].name} *" in text
    assert "1 never seen, 1 not in the fleet file" in text.splitlines()[-1]


def test_a_fleet_that_falls_silent_is_told_by_both_engines(fleet):
    fleet.list(fleet.devices)
    fleet.simulated.stop()
    for engine in fleet.engines:
        wait_until(
            lambda engine=engine: {row["state"] for row in fleet.rows(engine).values()} == {"silent"},
            what=f"{engine}: all silent",
        )
        assert fleet.status(engine)[0] == 1
