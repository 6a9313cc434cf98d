"""`omniwatch install --with-prometheus` under a real systemd, with Debian's own packages of Prometheus and Alertmanager."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from helpers.waiting import wait_until
from omniwatch.bundle.wiring import SERVERS
from suites.system.machine import Machine, run

UNITS = [server.unit for server in SERVERS]


@pytest.fixture(scope="module", autouse=True)
def debians(machine: Machine) -> None:
    """This machine's packages, as dpkg leaves them: files, what it remembers of them, account, state, running units."""
    stanzas = []
    for server in SERVERS:
        listed = subprocess.run(["dpkg", "-L", server.package], capture_output=True, text=True, check=False)
        assert listed.returncode == 0, f"{server.package} is not installed; `make test-system` installs it"
        for path in map(Path, listed.stdout.splitlines()):
            target = machine.tree / str(path).lstrip("/")
            if path.is_file() and not path.is_relative_to("/usr/share/doc"):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
        stanzas.append(run("dpkg-query", "-s", server.package))
    with (machine.tree / "var/lib/dpkg/status").open("a", encoding="utf-8") as status:
        status.write("\n" + "\n".join(stanzas))
    machine.run("useradd", "--system", "--home-dir", "/var/lib/prometheus", "--create-home", "prometheus")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "enable", "--now", *UNITS)


def ask(machine: Machine, address: str) -> Any:
    """Return what a server on the machine answers; None while it does not."""
    fetch = f"import urllib.request as u; print(u.urlopen({address!r}, timeout=5).read().decode())"
    done = machine.run("python3", "-c", fetch, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else None


def config(machine: Machine) -> str:
    """Return the configuration that the running Prometheus has read; "" while it does not answer."""
    answer = ask(machine, "http://127.0.0.1:9090/api/v1/status/config")
    return answer["data"]["yaml"] if answer else ""


def test_debians_units_read_the_bundle_and_go_back_to_their_own(machine):
    before = wait_until(lambda: config(machine), timeout=60, what="Debian's Prometheus")
    assert "omniwatch" not in before
    machine.run("/srv/venv/bin/omniwatch", "install", "--with-prometheus")
    wait_until(lambda: "job_name: omniwatch" in config(machine), timeout=60, what="the bundle's scrape jobs")

    def watched() -> bool:
        alerts = ask(machine, "http://127.0.0.1:9093/api/v2/alerts") or []
        return any(alert["labels"]["alertname"] == "Watchdog" for alert in alerts)

    wait_until(watched, timeout=90, what="the Watchdog at Debian's Alertmanager")
    machine.run("omniwatch", "uninstall", "--purge", "--yes")
    assert not (machine.tree / "etc/omniwatch").exists()
    assert not [one for one in SERVERS if (machine.tree / str(one.dropin)[1:]).exists()]
    assert wait_until(lambda: config(machine), timeout=60, what="Prometheus after the removal") == before
    # Without a network Debian's own Alertmanager does not start: its clustering finds no private address.
    assert machine.show("prometheus.service", "ActiveState") == "active"
