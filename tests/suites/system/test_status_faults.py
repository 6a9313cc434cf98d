"""`omniwatch status` on a booted machine with everything installed: each fault by itself is one red line that names it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from helpers.waiting import wait_until
from suites.system.machine import Machine, put
from suites.system.test_real_prometheus import config, debians

__all__ = ["debians"]
CONFIG = "etc/omniwatch/omniwatch.yaml"
BUNDLE = "etc/omniwatch/bundle"
SETTINGS = """
receivers: {watchdog_webhook_url: "http://127.0.0.1:9/ping", page_webhook_url: "http://127.0.0.1:9095/page"}
notify:
  try_for_s: 5
  robots: [{kind: wecom, url_file: /etc/omniwatch/wecom.url, language: en}]
site: {model_server: ""}
"""
ROBOT = """
import http.server, json, os

class Robot(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        refused = os.path.exists("/srv/refuses")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"errcode": 93000 if refused else 0, "errmsg": "invalid webhook url"}).encode())

http.server.HTTPServer(("127.0.0.1", 9999), Robot).serve_forever()
"""
Found = list[tuple[str, bool | None, str]]


@pytest.fixture(scope="module")
def installed(machine: Machine, debians: None) -> Machine:
    """Everything is installed on it and works; both servers were neither enabled nor running."""
    machine.run("systemctl", "disable", "--now", "prometheus.service", "prometheus-alertmanager.service")
    put(machine, CONFIG, SETTINGS)
    put(machine, "etc/omniwatch/wecom.url", "http://127.0.0.1:9999/send?key=tok\n", 0o644)
    put(machine, "srv/robot.py", textwrap.dedent(ROBOT))
    machine.run("systemd-run", "--unit=robot", "python3", "/srv/robot.py")
    machine.run("/srv/venv/bin/omniwatch", "install", "--with-prometheus")
    put(machine, "run/omniwatch/events.jsonl", "")
    wait_until(lambda: red(machine) == [], timeout=180, what="everything to be well")
    return machine


def status(machine: Machine) -> Found:
    done = machine.run("omniwatch", "status", "--json", check=False)
    found = [(one["what"], one["ok"], one["says"]) for one in json.loads(done.stdout)]
    assert done.returncode == (1 if any(ok is False for _, ok, _ in found) else 0)
    return found


def red(machine: Machine) -> list[tuple[str, str]]:
    """What is wrong, but for the pages that may fire of it by now."""
    return [(what, says) for what, ok, says in status(machine) if ok is False and what != "firing"]


def named(machine: Machine, what: str) -> list[tuple[str, str]]:
    """What is wrong of one thing."""
    return [one for one in red(machine) if one[0] == what]


@contextmanager
def done(machine: Machine, *command: str, undone: tuple[str, ...]) -> Iterator[None]:
    machine.run(*command)
    try:
        yield
    finally:
        machine.run(*undone)


@contextmanager
def stopped(machine: Machine, unit: str) -> Iterator[None]:
    with done(machine, "systemctl", "stop", unit, undone=("systemctl", "start", unit)):
        yield


@contextmanager
def disabled(machine: Machine, unit: str) -> Iterator[None]:
    with done(machine, "systemctl", "disable", unit, undone=("omniwatch", "install", "--with-prometheus")):
        yield


@contextmanager
def masked(machine: Machine, unit: str) -> Iterator[None]:
    with done(
        machine, "systemctl", "mask", "--runtime", unit, undone=("systemctl", "unmask", "--runtime", unit)
    ):
        yield


@contextmanager
def arguments(machine: Machine, server: str, flags: str) -> Iterator[None]:
    """Have a server started with other flags."""
    path = machine.tree / f"etc/default/{server}"
    before = path.read_text()
    path.write_text(f'ARGS="{flags}"\n')
    try:
        with done(machine, "systemctl", "restart", server, undone=("true",)):
            yield
    finally:
        path.write_text(before)
        machine.run("systemctl", "restart", server)


@contextmanager
def rewritten(machine: Machine, name: str, old: str, new: str) -> Iterator[None]:
    path = machine.tree / name
    before = path.read_text()
    assert old in before
    path.write_text(before.replace(old, new))
    try:
        yield
    finally:
        path.write_text(before)


@contextmanager
def refusing(machine: Machine) -> Iterator[None]:
    put(machine, "srv/refuses", "")
    machine.run("omniwatch", "page", "--test", check=False)
    try:
        yield
    finally:
        (machine.tree / "srv/refuses").unlink()
        machine.run("omniwatch", "page", "--test")


UNITS = ("omniwatch", "omniwatch-notify", "prometheus", "prometheus-alertmanager")
FAULTS: dict[str, tuple[Callable[[Machine], object], str, str]] = {
    **{
        f"{u} stopped": (lambda m, u=u: stopped(m, f"{u}.service"), f"{u}.service", "inactive") for u in UNITS
    },
    **{
        f"{u} disabled": (lambda m, u=u: disabled(m, f"{u}.service"), f"{u}.service", "disabled")
        for u in UNITS
    },
    "prometheus masked": (lambda m: masked(m, "prometheus.service"), "prometheus.service", "masked"),
    "rules not evaluated": (
        lambda m: arguments(m, "prometheus", "--query.max-samples=1"),
        "rules",
        "cannot be evaluated: query processing would load too many samples",
    ),
    "a bundle that somebody has changed": (
        lambda m: rewritten(
            m, f"{BUNDLE}/deploy/prometheus/prometheus.yml", "job_name: prometheus", "job_name: other"
        ),
        "bundle",
        "prometheus.yml",
    ),
    "Alertmanager not reached": (
        lambda m: arguments(m, "prometheus-alertmanager", "--web.listen-address=127.0.0.1:9193"),
        "Alertmanager",
        "127.0.0.1:9093: Connection refused",
    ),
    "a robot that refuses": (refusing, "bridge", "wecom-0 takes nothing since "),
    "a broken omniwatch.yaml": (
        lambda m: rewritten(m, CONFIG, "try_for_s: 5", "try_for_s: soon"),
        "configuration",
        "notify.try_for_s: expected",
    ),
    "settings that the sidecar has not taken over": (
        lambda m: rewritten(
            m, CONFIG, "try_for_s: 5", "listen_address: 127.0.0.1:9095\n  timeout_s: 9\n  try_for_s: 5"
        ),
        "sidecar's configuration",
        "systemctl reload omniwatch",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_by_itself_is_one_red_line_that_names_it(installed: Machine, name: str) -> None:
    begin, what, says = FAULTS[name]
    assert red(installed) == []
    with begin(installed):  # type: ignore[attr-defined]
        found = wait_until(lambda: red(installed), timeout=60, what="a red line")
        if name == "rules not evaluated":
            found = wait_until(
                lambda: [one for one in red(installed) if says in one[1]] and red(installed),
                timeout=60,
                what="the rules to fail",
            )
    (line,) = found
    assert line[0] == what, line
    assert says in line[1], line
    wait_until(lambda: red(installed) == [], timeout=240, what=f"the end of: {name}")


def test_a_configuration_that_was_not_taken_over_is_one_red_line(installed: Machine) -> None:
    """A threshold is written into the bundle, and Prometheus is not told; then Alertmanager is not."""
    before = (installed.tree / CONFIG).read_text()
    for text, server, says in (
        (before + "alerts: {drift_page_ms: 61}\n", "Prometheus", "has another expression"),
        (
            before.replace("page_webhook_url", "group_interval_s: 299, page_webhook_url"),
            "Alertmanager",
            "group_interval",
        ),
    ):
        put(installed, CONFIG, text)
        installed.run("omniwatch", "render", "--out", f"/{BUNDLE}")
        for other in {"omniwatch", "prometheus", "prometheus-alertmanager"} - {
            server.lower(),
            f"prometheus-{server.lower()}",
        }:
            installed.run("systemctl", "reload", other)
        what = f"{server}' configuration" if server.endswith("s") else f"{server}'s configuration"
        found = wait_until(partial(named, installed, what), timeout=60, what=what)
        assert found == red(installed)
        assert says in found[0][1]
        put(installed, CONFIG, before)
        installed.run("omniwatch", "install", "--with-prometheus")
        installed.run("systemctl", "reload", "omniwatch")
        wait_until(lambda: red(installed) == [], timeout=240, what="all to be as before")


def test_a_test_page_waits_for_the_robot(installed: Machine) -> None:
    taken = installed.run("omniwatch", "page", "--test").stdout
    assert taken.startswith("wecom-0: taken after "), taken
    put(installed, "srv/refuses", "")
    refused = installed.run("omniwatch", "page", "--test", check=False)
    (installed.tree / "srv/refuses").unlink()
    assert refused.returncode == 1
    assert "wecom-0: refused after " in refused.stdout
    assert "93000: invalid webhook url" in refused.stdout
    installed.run("omniwatch", "page", "--test")


def test_uninstall_gives_back_what_was_enabled(installed: Machine) -> None:
    """The last one here: nothing was enabled before."""
    assert installed.run("systemctl", "is-enabled", "prometheus").stdout.strip() == "enabled"
    installed.run("omniwatch", "uninstall")
    for server in ("prometheus", "prometheus-alertmanager"):
        assert installed.run("systemctl", "is-enabled", server, check=False).stdout.strip() == "disabled"
        assert installed.show(f"{server}.service", "ActiveState") == "inactive"
    assert config(installed) == ""
