"""What a person on call types on the device: every runbook command that can run here does, and `omniwatch doctor`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from helpers.runbooks import Command, fenced
from helpers.scraped import model_server, orin, scrape_too
from helpers.waiting import wait_until
from omniwatch.desk.child_process import get
from omniwatch.desk.demo.local_stack import Stack
from omniwatch.desk.promql import selectors

CANNOT = {
    r"\bsystem(ctl|d-tmpfiles)\b|\btimedatectl\b|^ls -l .*/run/dbus/": "no systemd runs here",
    r"^journalctl|^zcat /proc/config.gz|/sys/class/thermal": "no journal, kernel configuration or Jetson is here",
    r"^cat /sys/fs/cgroup/": "which cgroup tree there is differs from machine to machine",
    r"^omniwatch (tune|status|fleet|doctor)|:8428|^chronyc|^ls -l /etc/omniwatch": "looks at an installation, or at a fleet's centre",
    r"^rm ": "is not to be tried",
    r"/health\b": "the model server's stand-in has metrics only",
}
"""Commands that only tests/bundle/test_runbook_commands.py looks at, and why."""
ELSEWHERE = r"omniwatch_notify_\w+|vmagent_\w+|uplink:\w*|prometheus_\w+|process_\w+|ALERTS|up"
"""Series that are not of the sidecar, the readers or the model server."""
LATER = {
    "omni_codec_drift_slope_ppm": "of speech longer than this run's",
    "omni_codec_drift_eta_seconds": "of speech longer than this run's",
    "vllm:num_requests_waiting_by_reason": "newer than the recorded page",
    "vllm_omni:requests_failed_total": "there once a request has failed",
    "omniwatch_source_free_bytes": "of a source on a full file system",
    "omniwatch_certificate_not_after_timestamp_seconds": "of a device with a certificate",
    "omniwatch_certificate_readable": "of a device with a certificate",
    "omniwatch_web_config_last_reload_successful": "of pages with a web configuration",
}
"""Series that this run need not have, and why."""


class Chain(NamedTuple):
    """The sidecar, Prometheus and Alertmanager that run, and where the model server's stand-in answers."""

    stack: Stack
    model_server: str


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    directory = tmp_path_factory.mktemp("on-call")
    with ExitStack() as parts:
        stack = parts.enter_context(Stack(directory / "stack", say=lambda line: None))
        device = parts.enter_context(orin(directory / "orin"))
        server = parts.enter_context(model_server())
        scrape_too(stack, {"omniwatch": device, "model_server": server})
        stack.simulate("--scenario", "reconnect-jump", "--fault-at", "3", "--mend-at", "600")
        wait_until(lambda: len(stack.query("up == 1")) == 3, what="three targets that are up")
        wait_until(lambda: stack.query("omni_codec_drift_ms"), what="speech")
        yield Chain(stack, server)


def here(chain: Chain, command: Command) -> str:
    """Return the command with this run's addresses and files in the place of a device's."""
    stack = chain.stack
    for old, new in {
        "127.0.0.1:9842": stack.settings.site.exporter,
        "127.0.0.1:9093": stack.settings.site.alertmanager,
        "127.0.0.1:9090": stack.prometheus.url.removeprefix("http://"),
        "127.0.0.1:8000": chain.model_server,
        "/run/omniwatch": str(stack.events.parent),
        "/etc/omniwatch/omniwatch.yaml": str(stack.directory / "omniwatch.yaml"),
        "omniwatch explain": f"omniwatch explain --config.file {stack.directory}/omniwatch.yaml",
    }.items():
        command = command._replace(line=command.line.replace(old, new))
    return command.line


RUN = {
    command.line: command for command in fenced() if not any(re.search(why, command.line) for why in CANNOT)
}


def typed(chain: Chain, command: Command) -> subprocess.CompletedProcess[str]:
    """Run a page's command as somebody on the device would."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", here(chain, command)],
        cwd=chain.stack.directory,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def silenced(stack: Stack) -> dict[str, bool]:
    """Return whether each alert that Alertmanager has is silenced."""
    told = json.loads(get(f"http://{stack.settings.site.alertmanager}/api/v2/alerts"))
    return {alert["labels"]["alertname"]: bool(alert["status"]["silencedBy"]) for alert in told}


@pytest.mark.timeout(240)
def test_the_silence_before_a_restart_is_of_speech_and_not_of_the_heartbeat(chain):
    (silence,) = {command.line for command in fenced() if "--comment=restart" in command.line}
    heard = {"CodecDrift", "Watchdog"}
    wait_until(lambda: heard <= silenced(chain.stack).keys(), timeout=90, what="a page, and the heartbeat")
    assert silenced(chain.stack)["CodecDrift"] is False
    assert typed(chain, Command("CodecDrift", silence)).returncode == 0
    wait_until(lambda: silenced(chain.stack)["CodecDrift"], what="a silenced page")
    assert silenced(chain.stack)["Watchdog"] is False


@pytest.mark.timeout(240)
def test_every_command_that_can_run_here_runs(chain):
    assert len(RUN) > 90
    failed = {}
    for command in RUN.values():
        done = typed(chain, command)
        # grep says with 1 that a healthy device has nothing of what is looked for.
        fine = done.returncode == 0 or (done.returncode == 1 and "grep" in command.line)
        # Whoever is not root does not see all of /run.
        said = re.sub(r"du: cannot read directory .*: Permission denied\n", "", done.stderr)
        if not fine or said:
            failed[command.page, command.line] = (done.returncode, done.stderr)
    assert not failed, "\n".join(f"{k}: {v}" for k, v in failed.items())


@pytest.mark.timeout(240)
def test_every_series_that_a_page_asks_for_is_there(chain):
    stack = chain.stack
    known = set(json.loads(get(f"{stack.prometheus.url}/api/v1/label/__name__/values"))["data"])
    asked = {
        selector.metric
        for command in fenced()
        for query in command.queries()
        for selector in selectors(query)
    }
    ours = {
        name for name in asked if re.match("omni|jetson_|vllm", name) and not re.fullmatch(ELSEWHERE, name)
    }
    assert len(ours) > 40
    assert ours - known - set(LATER) == set()


@pytest.mark.timeout(240)
def test_the_doctor_finds_what_is_wrong_on_a_device_that_runs(chain, tmp_path):
    stack = chain.stack
    wait_until(lambda: stack.query('ALERTS{alertname="CodecDrift"}'), timeout=60, what="an alert")
    target = tmp_path / "evidence.tar.gz"
    done = subprocess.run(
        [sys.executable, "-m", "omniwatch", "doctor", f"--config.file={stack.directory / 'omniwatch.yaml'}",
         f"--prometheus.url={stack.prometheus.url}", f"--out={target}", "--lines=50"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with tarfile.open(target) as archive:
        files = {
            name.partition("/")[2]: archive.extractfile(name).read().decode() for name in archive.getnames()
        }
    assert next(iter(files)) == "SUMMARY.md"
    assert re.search(
        r"^- \*\*CodecDrift\*\* (fires|pending) \(page\) device orin stream \d",
        files["SUMMARY.md"],
        re.MULTILINE,
    )
    assert "omni_codec_drift_ms{" in files["sidecar/metrics.prom"]
    assert files["sidecar/healthy.txt"].strip()
    assert {group["name"] for group in json.loads(files["prometheus/rules.json"])["data"]["groups"]} >= {
        "omni_streaming"
    }
    events = files["events/0-events.jsonl"].splitlines()
    assert len(events) == 50
    assert all(json.loads(line)["stream"].startswith("stream-") for line in events)
