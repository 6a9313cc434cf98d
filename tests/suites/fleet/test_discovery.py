"""A fleet file as a real Prometheus discovers it, by file and by HTTP, while the file changes and breaks."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack

import pytest

from helpers.fleet_servers import OMNIWATCH, Place, query
from helpers.waiting import wait_until
from omniwatch.centre import inventory
from omniwatch.desk.child_process import free_port, get

COUNT = 8


@pytest.fixture
def place(tmp_path):
    with ExitStack() as ending:
        yield Place(tmp_path, ending)


def test_both_ways_of_discovery_follow_the_fleet_file_and_survive_its_breaking(place, tmp_path):
    simulated = place.simulated(COUNT, "--outages=0", "--skewed=0")
    fleet, targets = tmp_path / "fleet.yaml", tmp_path / "targets.json"
    fleet.write_bytes(get(f"{simulated.url}/fleet.yaml"))
    devices = inventory.load(fleet).devices

    def write_targets() -> int:
        command = [*OMNIWATCH, "fleet", "targets", str(fleet), f"--out={targets}"]
        return subprocess.run(command, timeout=30, capture_output=True, check=False).returncode

    assert write_targets() == 0
    port = free_port()
    argv = [*OMNIWATCH, "fleet", "serve", str(fleet), f"--web.listen-address=127.0.0.1:{port}"]
    served = place.start("served", argv, "/-/ready", port)
    ways = {
        "by_file": {"file_sd_configs": [{"files": [str(targets)], "refresh_interval": "1s"}]},
        "by_http": {"http_sd_configs": [{"url": f"{served.url}/targets", "refresh_interval": "1s"}]},
    }
    jobs = [
        {"job_name": job, "scrape_interval": "1s", "scrape_timeout": "1s", **way} for job, way in ways.items()
    ]
    prometheus = place.prometheus({"scrape_configs": jobs})

    def scraped(job: str) -> set[tuple[str, ...]]:
        up = query(prometheus, f'up{{job="{job}"}} == 1')
        return {tuple(one["metric"].get(label, "") for label in inventory.LABELS) for one in up}

    def expect(expected: list[inventory.Device]) -> None:
        wanted = {(one.name, one.site, one.model, one.release) for one in expected}
        for job in ways:
            wait_until(lambda job=job: scraped(job) == wanted, what=f"{job}: {len(wanted)} targets")

    expect(devices)

    changed = [
        *devices[1:-1],
        inventory.Device(devices[-1].name, devices[-1].address, "elsewhere", release="9"),
    ]
    fleet.write_text(inventory.dump(changed))
    assert write_targets() == 0
    expect(changed)

    fleet.write_text("devices: [{name: device-00001, addr")
    assert write_targets() == 2
    wait_until(lambda: b"last_reload_successful 0.0" in get(f"{served.url}/metrics"))
    prometheus.stop()
    prometheus.start()
    prometheus.await_ready("/-/ready")
    began = query(prometheus, "time()")[1]
    wait_until(lambda: query(prometheus, f"count(timestamp(up) > {began})"), what="scrapes after the restart")
    expect(changed)
