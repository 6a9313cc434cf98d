"""A device of each distribution, from `install --with-prometheus` to `uninstall`, with its own Prometheus and Alertmanager.

The tests of one machine go on from each other, in this order.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.waiting import wait_until
from omniwatch.bundle.wiring import SERVERS
from omniwatch.settings import Settings
from suites.system.machine import Machine, put
from suites.targets import takers

OMNIWATCH = "/srv/venv/bin/omniwatch"
KEY, PASSWORD = "k3y-of-pagerduty-0123456789", "pass-of-the-mail-server"
GRACE_S = 7
SITE = f"""
receivers:
  secrets: SECRETS
  group_interval_s: 5
  page_webhook_url: http://pager.test:8099/page
  ticket_webhook_url: http://pager.test:8099/ticket
  watchdog_webhook_url: http://pager.test:8099/beat
  page: {{pagerduty_routing_key_file: /etc/omniwatch/secrets/pagerduty, email_to: oncall@mail.test}}
  mail:
    smarthost: mail.test:587
    sender: omniwatch@mail.test
    username: {takers.USER}
    password_file: /etc/omniwatch/secrets/mail
"""
BUNDLE = "etc/omniwatch/bundle"
ALERTMANAGER = f"{BUNDLE}/deploy/alertmanager/alertmanager.yml"


def taken(machine: Machine, kind: str, alert: str, status: str) -> list[dict[str, Any]]:
    """What a server was sent of an alert, as a fault or as its end."""
    text = machine.run("cat", takers.TAKEN, check=False).stdout
    found = []
    for one in map(json.loads, text.splitlines()):
        said = json.dumps(one["body"])
        is_of = {
            "/v2/enqueue": lambda body: (
                body["event_action"] == {"firing": "trigger", "resolved": "resolve"}[status]
            ),
            "mail": lambda body: f"[{status.upper()}" in body["text"].upper(),
        }.get(kind, lambda body: body["status"] == status)
        if one["kind"] == kind and alert in said and is_of(one["body"]):
            found.append(one)
    return found


def await_everywhere(machine: Machine, alert: str, status: str, timeout: float) -> None:
    for kind in ("/page", "/v2/enqueue", "mail"):
        wait_until(
            lambda kind=kind: taken(machine, kind, alert, status),
            timeout=timeout,
            what=f"{kind}: {alert}, {status}",
        )


def is_old(machine: Machine) -> bool:
    """Whether the distribution's Alertmanager reads no secret from a file."""
    said = machine.run("amtool", "--version").stdout
    (version,) = re.findall(r"version (\d+)\.(\d+)", said)[:1]
    return tuple(map(int, version)) < (0, 25)


def set_up(machine: Machine, secrets: str) -> None:
    put(machine, "etc/omniwatch/omniwatch.yaml", SITE.replace("SECRETS", secrets))
    for name, text in (("pagerduty", KEY), ("mail", PASSWORD)):
        put(machine, f"etc/omniwatch/secrets/{name}", text, 0o400)
        machine.run("chown", "prometheus", f"/etc/omniwatch/secrets/{name}")


def config_of(machine: Machine, address: str, field: Callable[[Any], str]) -> str:
    """The configuration that a server runs; "" while it does not answer."""
    fetch = f"import urllib.request as u; print(u.urlopen({address!r}, timeout=5).read().decode())"
    done = machine.run("python3", "-c", fetch, check=False)
    return field(json.loads(done.stdout)) if done.returncode == 0 else ""


def prometheus(machine: Machine) -> str:
    return config_of(
        machine, "http://127.0.0.1:9090/api/v1/status/config", lambda found: found["data"]["yaml"]
    )


def alertmanager(machine: Machine) -> str:
    return config_of(
        machine, "http://127.0.0.1:9093/api/v2/status", lambda found: found["config"]["original"]
    )


def test_its_promtool_passes_the_unit_tests_of_all_rules(machine: Machine) -> None:
    done = machine.run(OMNIWATCH, "check", "--unit-tests", "-v")
    passed = re.findall(
        r"^SUCCESS: promtool test rules: alerts/(\w+)\.test\.yaml$", done.stdout, re.MULTILINE
    )
    assert len(passed) >= 9, done.stdout
    assert "FAILED" not in done.stdout


def test_a_recording_is_judged_by_its_prometheus(machine: Machine) -> None:
    made = machine.run(
        OMNIWATCH, "simulate", "--scenario", "overload", "--speed", "max", "--start-time", "1760000000"
    )
    put(machine, "srv/overload.jsonl", made.stdout)
    said = machine.run(OMNIWATCH, "backtest", "/srv/overload.jsonl").stdout
    assert re.search(r"CodecDrift", said), said


def test_the_whole_bundle_is_rendered(machine: Machine) -> None:
    machine.run(OMNIWATCH, "render", "--out", "/srv/bundle")
    assert (machine.tree / "srv/bundle/deploy/fleet/centre-prometheus.yml").exists()


def test_secrets_that_its_alertmanager_cannot_read_are_refused_in_a_line(machine: Machine) -> None:
    set_up(machine, "files")
    code = 1 if is_old(machine) else 0
    done = machine.run(OMNIWATCH, "check", "--config.file", "/etc/omniwatch/omniwatch.yaml", check=False)
    assert done.returncode == code, done.stdout
    if not code:
        return
    (said,) = (line for line in done.stdout.splitlines() if line.startswith("FAILED"))
    assert "Alertmanager of at least 0.25" in said
    assert "receivers.secrets: inline" in said
    refused = machine.run(OMNIWATCH, "install", "--with-prometheus", check=False)
    assert refused.returncode == 2
    assert said in refused.stderr
    assert not (machine.tree / BUNDLE).exists()
    set_up(machine, "inline")


def test_both_servers_read_the_bundle_and_a_second_installation_changes_nothing(machine: Machine) -> None:
    machine.run(OMNIWATCH, "install", "--with-prometheus")
    wait_until(
        lambda: "job_name: omniwatch" in prometheus(machine), timeout=60, what="the bundle's scrape jobs"
    )
    wait_until(
        lambda: "pagerduty_configs" in alertmanager(machine), timeout=60, what="the bundle's receivers"
    )
    assert machine.run("omniwatch", "install", "--with-prometheus").stdout == "nothing to change\n"


def test_its_systemd_knows_every_directive(machine: Machine) -> None:
    units = [
        f"/etc/systemd/system/{path.name}"
        for path in (machine.tree / "etc/systemd/system").glob("omniwatch*.service")
    ]
    assert units
    said = machine.run("systemd-analyze", "verify", "--man=no", *units, check=False).stderr
    assert not [line for line in said.splitlines() if "omniwatch" in line], said


def test_secrets_are_read_by_alertmanagers_account_alone(machine: Machine) -> None:
    listed = machine.run("stat", "-c", "%a %U:%G", f"/{ALERTMANAGER}").stdout
    holds = KEY in (machine.tree / ALERTMANAGER).read_text()
    assert (holds, listed) == (
        (True, "640 root:prometheus\n") if is_old(machine) else (False, "644 root:root\n")
    )
    assert KEY not in machine.run("omniwatch", "install", "--with-prometheus", "--diff", check=False).stdout


def test_a_drift_pages_in_time_and_its_end_is_told(machine: Machine) -> None:
    scenario = ["simulate", "--scenario", "reconnect-jump", "--quiet", "--out", "/run/omniwatch/events.jsonl"]
    machine.run("systemd-run", "--unit=voice", OMNIWATCH, *scenario)

    def crossed() -> float | None:
        late = [value for name, value in machine.metrics().items() if name.startswith("omni_codec_drift_ms")]
        if any(abs(value) > Settings().alerts.drift_page_ms for value in late):
            return float(machine.run("date", "+%s.%N").stdout)
        return None

    crossed_t = wait_until(crossed, timeout=60, what="the drift")
    await_everywhere(machine, "CodecDrift", "firing", 60)
    after_s = taken(machine, "/page", "CodecDrift", "firing")[0]["t"] - crossed_t
    assert after_s <= Settings().alerts.drift_for_s + GRACE_S
    (paged,) = taken(machine, "/v2/enqueue", "CodecDrift", "firing")
    assert paged["body"]["routing_key"] == KEY
    assert taken(machine, "mail", "CodecDrift", "firing")[0]["body"]["login"] == [takers.USER, PASSWORD]
    await_everywhere(machine, "CodecDrift", "resolved", 120)
    machine.run("systemctl", "stop", "voice")


def test_status_and_a_test_page(machine: Machine) -> None:
    machine.run("omniwatch", "status")
    said = machine.run("omniwatch", "page", "--test", "--config.file", "/etc/omniwatch/omniwatch.yaml").stdout
    for receiver in ("webhook", "pagerduty", "email"):
        assert re.search(rf"{receiver}: taken after", said), said
    await_everywhere(machine, "OmniwatchTest", "resolved", 60)


def test_an_alertmanager_that_is_not_the_distributions_reads_them_from_their_files(machine: Machine) -> None:
    """This machine's stands for upstream's, which has within it what Debian's has in files."""
    if not is_old(machine):
        pytest.skip("the distribution's own does")
    for template in Path("/usr/share/prometheus/alertmanager").glob("*.tmpl"):
        shutil.copy2(template, machine.tree / str(template)[1:])
    set_up(machine, "files")
    for name, program in (("alertmanager", "prometheus-alertmanager"), ("amtool", "amtool")):
        shutil.copy2(Path("/usr/bin", program), machine.tree / "usr/local/bin" / name)
    if is_old(machine):
        pytest.skip("this machine's Alertmanager is not newer")
    machine.run("omniwatch", "install", "--with-prometheus")
    assert "/usr/local/bin/alertmanager" in machine.show("prometheus-alertmanager.service", "ExecStart")
    assert KEY not in (machine.tree / ALERTMANAGER).read_text()
    assert machine.run("omniwatch", "install", "--with-prometheus").stdout == "nothing to change\n"
    wait_until(lambda: "routing_key_file" in alertmanager(machine), timeout=60, what="the newer Alertmanager")
    machine.run("rm", "-f", takers.TAKEN)
    said = machine.run("omniwatch", "page", "--test", "--config.file", "/etc/omniwatch/omniwatch.yaml").stdout
    assert "pagerduty: taken after" in said
    for status in ("firing", "resolved"):
        await_everywhere(machine, "OmniwatchTest", status, 60)
    assert taken(machine, "mail", "OmniwatchTest", "firing")[0]["body"]["login"] == [takers.USER, PASSWORD]


def test_an_uninstallation_puts_both_back_on_their_own_configuration(machine: Machine) -> None:
    machine.run("omniwatch", "uninstall")
    assert not [one for one in SERVERS if (machine.tree / str(one.dropin)[1:]).exists()]
    assert not (machine.tree / "opt/omniwatch").exists()
    wait_until(
        lambda: (said := prometheus(machine)) and "omniwatch" not in said,
        timeout=60,
        what="Prometheus' own configuration",
    )
