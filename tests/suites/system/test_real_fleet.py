"""The uplink and the bridge to chat robots under a real systemd, with real agents and a real centre on the machine."""

from __future__ import annotations

import json
import re
import shutil
import time
import urllib.parse
from typing import Any

import pytest

from helpers.fake_robots import webhook
from helpers.waiting import wait_until
from suites.system import server
from suites.system.machine import Machine, put, snapshot

UPLINK, BRIDGE = "omniwatch-uplink.service", "omniwatch-notify.service"
CONFIG = "etc/omniwatch/omniwatch.yaml"
SETTINGS = """
site: {device: orin-7}
server: {device_memory_gb: 64, profile: int4}
fleet:
  centre: true
  remote_write_url: http://127.0.0.1:8428/api/v1/write
  agent: vmagent
  token_file: /etc/omniwatch/secrets/token
  site: depot
  interval_s: 1
  flush_s: 1
"""
ROBOT = "notify: {robots: [{kind: wecom, url_file: /etc/omniwatch/secrets/wecom}]}\n"
TAKES_MESSAGES = """\
#!/usr/bin/python3
import http.server

class Robot(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        with open("/run/messages", "ab") as messages:
            messages.write(self.rfile.read(int(self.headers["Content-Length"])) + b"\\n")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"errcode": 0}')

http.server.HTTPServer(("127.0.0.1", 8099), Robot).serve_forever()
"""
BESIDE = {
    "centre": "/usr/bin/victoria-metrics -storageDataPath=/run/centre",
    "robot": "/usr/local/bin/robot",
    "prometheus": "/usr/bin/prometheus --config.file=/run/bundle/deploy/prometheus/prometheus.yml"
    " --storage.tsdb.path=/run/prometheus",
}
"""What runs beside what is installed, each as a unit of its own."""


@pytest.fixture(scope="module")
def before(machine: Machine) -> dict[str, str]:
    """What is there before an installation."""
    for name in ("prometheus", "vmagent", "victoria-metrics"):
        found = shutil.which(name)
        assert found, f"{name} is not installed; `make test-system` installs it"
        shutil.copy(found, machine.tree / "usr/bin" / name)
    put(machine, server.PATH, server.PROGRAM, 0o755)
    put(machine, "usr/local/bin/robot", TAKES_MESSAGES, 0o755)
    for name, command in BESIDE.items():
        put(machine, f"etc/systemd/system/{name}.service", f"[Service]\nExecStart={command}\n")
    machine.run("systemctl", "daemon-reload")
    return snapshot(machine.tree)


@pytest.fixture(scope="module", autouse=True)
def joined(machine: Machine, before: dict[str, str]) -> str:
    """What the installation said. The device's Prometheus has the rendered rules; the centre runs, and one robot."""
    put(machine, CONFIG, SETTINGS)
    put(machine, "etc/omniwatch/secrets/token", "of-the-centre\n", 0o600)
    told = machine.run("/srv/venv/bin/omniwatch", *server.INSTALL, "--fleet").stdout
    machine.run("omniwatch", "render", f"--config.file=/{CONFIG}", "--out", "/run/bundle")
    machine.run("systemctl", "start", *BESIDE)
    return told


def on_the_device(machine: Machine, query: str) -> list[float]:
    """The values that the device's own Prometheus has."""
    return at_the_centre(machine, query, port=9090)


def at_the_centre(machine: Machine, query: str, at: float | None = None, port: int = 8428) -> list[float]:
    """The values that the centre has of a query, at a time; none while it does not answer."""
    asked = urllib.parse.urlencode({"query": query, "nocache": 1, **({} if at is None else {"time": at})})
    fetch = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{port}/api/v1/query?{asked}').read().decode())"
    done = machine.run("python3", "-c", fetch, check=False)
    found: list[dict[str, Any]] = json.loads(done.stdout)["data"]["result"] if done.stdout else []
    return [float(series["value"][1]) for series in found]


def test_the_centre_hears_of_the_device(machine: Machine, joined: str) -> None:
    assert f"wrote /etc/systemd/system/{UPLINK}" in joined
    turns = 'uplink:streams:max{site="depot",device="orin-7",model="qwen3-omni"}'
    wait_until(
        lambda: at_the_centre(machine, turns) == [1], timeout=90, what="the centre to hear of the stream"
    )
    pid = machine.show(UPLINK, "MainPID")
    assert machine.run("stat", "-c", "%U", f"/proc/{pid}").stdout.strip() not in ("root", "omniwatch")
    assert machine.run("stat", "-Lc", "%a", "/var/lib/omniwatch-uplink").stdout.strip() == "700"
    again = machine.run("omniwatch", *server.INSTALL, "--fleet")
    assert again.stdout == "nothing to change\n"
    assert machine.show(UPLINK, "MainPID") == pid


def test_the_installed_program_asks_the_centre(machine: Machine) -> None:
    shown = machine.run(
        "omniwatch", "fleet", "status", "--prometheus.url", "http://127.0.0.1:8428", check=False
    )
    assert shown.returncode in (0, 1), shown.stderr
    assert re.search(r"^.*depot.*orin-7|^.*orin-7.*depot", shown.stdout, re.MULTILINE), shown.stdout


def test_the_installed_program_serves_a_fleets_targets(machine: Machine) -> None:
    fleet = "devices: [{name: orin-7, address: 10.8.0.7:9842, site: depot, model: orin-64}]"
    machine.run("sh", "-c", f"echo '{fleet}' > /run/fleet.yaml")
    machine.run(
        "systemd-run", "--unit=targets", "/usr/local/bin/omniwatch", "fleet", "serve", "/run/fleet.yaml"
    )
    fetch = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9844/targets').read().decode())"
    served = wait_until(
        lambda: machine.run("python3", "-c", fetch, check=False).stdout,
        timeout=30,
        what="targets to be served",
    )
    machine.run("systemctl", "stop", "targets")
    (group,) = json.loads(served)
    assert group["targets"] == ["10.8.0.7:9842"]
    assert group["labels"]["device"] == "orin-7"


def faults(machine: Machine) -> dict[str, str]:
    """What status finds wrong, but for pages that fire of it by now."""
    found = json.loads(machine.run("omniwatch", "status", "--json", check=False).stdout)
    return {one["what"]: one["says"] for one in found if one["ok"] is False and one["what"] != "firing"}


@pytest.mark.parametrize("unit", [UPLINK, server.UNIT])
@pytest.mark.parametrize(
    ("begun", "ended", "says"), [("stop", "start", "inactive"), ("disable", "enable", "disabled")]
)
def test_status_names_a_unit_that_is_stopped_or_disabled(
    machine: Machine, unit: str, begun: str, ended: str, says: str
) -> None:
    """Those that other settings have not: the other units are in test_status_faults."""
    before = faults(machine)
    machine.run("systemctl", begun, unit)
    after = faults(machine)
    machine.run("systemctl", ended, unit)
    assert set(after) - set(before) == {unit}
    assert says in after[unit]
    wait_until(lambda: not set(faults(machine)) - set(before), what=f"the end of: {begun} {unit}")


def test_what_waits_for_the_centre_outlasts_a_restart_of_the_uplink(machine: Machine) -> None:
    machine.run("systemctl", "stop", "centre")
    gone_t = time.time()
    own = "http://127.0.0.1:9843/metrics"
    failed = 'vmagent_remotewrite_retries_count_total{url="1:secret-url"}'
    wait_until(lambda: machine.metrics(own).get(failed, 0) > 1, timeout=60, what="the uplink to fail to send")
    # By its third look the uplink has what the device recorded at its first.
    wait_until(
        lambda: max(on_the_device(machine, "uplink:time_seconds"), default=0) > gone_t + 10,
        what="two evaluations more",
    )
    waiting_t = time.time()
    machine.run("systemctl", "restart", UPLINK)
    machine.run("systemctl", "start", "centre")
    wait_until(
        lambda: max(at_the_centre(machine, "uplink:time_seconds", waiting_t), default=0) > gone_t,
        timeout=90,
        what="the centre to have what was measured while it was away",
    )


def test_another_agent_takes_its_place(machine: Machine) -> None:
    put(machine, CONFIG, SETTINGS.replace("agent: vmagent", "agent: prometheus"))
    machine.run("omniwatch", *server.INSTALL, "--fleet")
    changed_t = time.time()
    assert "/usr/bin/prometheus" in machine.show(UPLINK, "ExecStart")
    assert not (machine.tree / "etc/omniwatch/uplink.yml").exists()
    wait_until(
        lambda: max(at_the_centre(machine, "uplink:time_seconds"), default=0) > changed_t,
        timeout=90,
        what="the centre to hear by the other agent",
    )


def test_a_page_reaches_the_robot_that_the_settings_name(machine: Machine) -> None:
    put(machine, "etc/omniwatch/secrets/wecom", "http://127.0.0.1:8099/send?key=tok\n", 0o640)
    machine.run("chgrp", "omniwatch", "/etc/omniwatch/secrets/wecom")
    put(machine, CONFIG, SETTINGS + ROBOT)
    refused = machine.run("omniwatch", *server.INSTALL, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(
        "Error: notify.robots: the running program lacks the bridge to chat robots: "
    )
    machine.run("/srv/venv/bin/omniwatch", *server.INSTALL)
    wait_until(lambda: machine.show(BRIDGE, "ActiveState") == "active", what="the bridge to run")
    put(machine, "srv/page.json", webhook().decode())
    post = "import urllib.request as u; u.urlopen('http://127.0.0.1:9095/page', open('/srv/page.json', 'rb').read())"
    wait_until(
        lambda: machine.run("python3", "-c", post, check=False).returncode == 0,
        what="the bridge to take the page",
    )
    message = wait_until(
        lambda: machine.run("cat", "/run/messages", check=False).stdout, what="the robot to be told"
    )
    assert "声音与画面不同步" in json.loads(message)["markdown"]["content"]
    machine.run("rm", "/srv/page.json")


def test_the_bridge_goes_with_the_last_robot_and_the_uplink_stays(machine: Machine) -> None:
    put(machine, CONFIG, SETTINGS)
    assert f"removed /etc/systemd/system/{BRIDGE}" in machine.run("omniwatch", *server.INSTALL).stdout
    gone = machine.run("omniwatch", "notify", check=False)
    assert gone.stderr.startswith("Error: notify: this machine lacks the bridge to chat robots: ")
    assert machine.show(BRIDGE, "ActiveState") == "inactive"
    assert machine.show(UPLINK, "ActiveState") == "active"


def test_purging_leaves_nothing_of_uplink_or_bridge(machine: Machine, before: dict[str, str]) -> None:
    """The last test here."""
    machine.run("omniwatch", "uninstall", "--purge", "--yes")
    assert machine.run("systemctl", "is-active", UPLINK, check=False).stdout.strip() == "inactive"
    machine.run("systemctl", "stop", *BESIDE)
    after = snapshot(machine.tree)
    assert {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} == set()
    assert not (machine.tree / "var/lib/private/omniwatch-uplink").exists()
