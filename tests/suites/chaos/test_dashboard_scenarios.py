"""Every query of every dashboard under every scenario of `simulate`: real sidecars, a real Prometheus with the real rules.

All scenarios run at once, each as a device of its own, in real time. What must have data is derived from the pages that
the sidecars exposed and the alerts that fired, and a query must return something exactly then.
"""

from __future__ import annotations

import json
import math
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.exposed import Exposed, has_data
from helpers.waiting import wait_until
from omniwatch.bundle import dashboard_json, render
from omniwatch.desk.child_process import ChildProcess, free_port, get
from omniwatch.desk.demo.local_stack import Stack
from omniwatch.desk.draw.prometheus import ask
from omniwatch.desk.draw.queries import Query, queries
from omniwatch.desk.draw.window import Window
from omniwatch.desk.simulation import SCENARIOS
from omniwatch.settings import Settings

RUN_S = 55.0
FAULT_S, MENDED_S = 8, 40
POLL_S = 1.0
DASHBOARDS = {
    path.stem: json.loads(text)
    for path, text in render.render(Settings()).items()
    if path.parts[0] == "dashboards" and path.stem != "fleet"
}
"""But for that of a fleet's centre, which sees what devices send up and scrapes none."""
SERVERS_OWN = "vllm_omni:"
"""What a model server tells of itself; `simulate` is none."""
EARS_OWN = "omniwatch_ear_up"
"""A kernel that is asked and does not answer: the servers of these scenarios write no `arrived`."""
HAPPENS = {
    "reconnect-jump": {
        "resumption": ["Resumes by result", "Resumes that succeeded"],
        "streaming": ["Voice against picture"],
    },
    "late-answers": {"streaming": ["Text to first speech", "Answers in time"]},
    "stall": {"streaming": ["Waiting for speech that is due", "How turns ended"]},
    "corrupt-frames": {"resumption": ["Lost, late, duplicate and corrupt frames"]},
    "barge-in": {
        "streaming": [
            "Speech after the user spoke up",
            "Speech thrown away",
            "Time to first speech after an interruption",
        ]
    },
    "two-streams": {"streaming": ["Streams", "Time to first speech, percentiles"]},
}
"""Panels that show what a scenario is about: they have data, whatever the oracle would have made of it."""


class Run:
    """The chain with a device a scenario, and what each has exposed."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.start = self.end = time.time()
        self.sidecars: dict[str, ChildProcess] = {}
        self.exposed = {name: Exposed() for name in SCENARIOS}
        for name in SCENARIOS:
            address = f"127.0.0.1:{free_port()}"
            command = [
                sys.executable,
                "-m",
                "omniwatch",
                "exporter",
                "--config.file=/dev/null",
                f"tail:{self.events(name)}",
            ]
            self.sidecars[name] = stack.run(name, [*command, f"--web.listen-address={address}"], address)
        self._scrape()

    def events(self, name: str) -> Path:
        return self.stack.events.parent / f"{name}.jsonl"

    def _scrape(self) -> None:
        """Let Prometheus scrape the sidecars under the job and with the labels that a device has."""
        path = self.stack.directory / "bundle/deploy/prometheus/prometheus.yml"
        config = yaml.safe_load(path.read_text())
        config["scrape_configs"] += [
            {
                "job_name": f"omniwatch-{name}",
                "static_configs": [
                    {
                        "targets": [sidecar.url.removeprefix("http://")],
                        "labels": {"device": name, "job": "omniwatch"},
                    }
                ],
            }
            for name, sidecar in self.sidecars.items()
        ]
        path.write_text(yaml.safe_dump(config))
        self.stack.prometheus.process.send_signal(signal.SIGHUP)

    def simulate(self) -> list[ChildProcess]:
        """Start all scenarios, their faults early and short."""
        started = []
        for name, scenario in SCENARIOS.items():
            moved = (
                ["--fault-at", f"{FAULT_S}", "--mend-at", f"{MENDED_S}"]
                if scenario.fault_at_s is not None
                else []
            )
            command = [sys.executable, "-m", "omniwatch", "simulate", "--scenario", name, *moved]
            started.append(self.stack.run(f"{name}-server", [*command, f"--out={self.events(name)}"]))
        return started

    def poll(self) -> None:
        """Take a page of each sidecar, and the alerts that fire."""
        for name, sidecar in self.sidecars.items():
            self.exposed[name].add(get(f"{sidecar.url}/metrics").decode())
            self.exposed[name].put("up", {"job": "omniwatch", "device": name}, 1.0)
        for alert in self.stack.alerts():
            exposed = self.exposed.get(alert["labels"].get("device", ""))
            if exposed is not None and alert["state"] == "firing":
                exposed.put("ALERTS", {**alert["labels"], "alertstate": "firing"}, 1.0)

    def remember(self) -> None:
        """Take each series as Prometheus has it: what is so for a moment, it may see and we not, and the other way round."""
        for name, exposed in self.exposed.items():
            for one in self.stack.query(f'{{device="{name}"}}[5m]'):
                labels = dict(one["metric"])
                exposed.replace(labels.pop("__name__"), labels, [float(value) for _, value in one["values"]])

    def scrapes(self) -> float:
        """How often Prometheus has scraped the device that it has scraped least."""
        found = self.stack.query('count_over_time(up{job="omniwatch"}[5m])')
        return min((float(one["value"][1]) for one in found), default=0) if len(found) > len(SCENARIOS) else 0


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with Stack(tmp_path_factory.mktemp("scenarios") / "stack", say=lambda line: None) as stack:
        run = Run(stack)
        for sidecar in run.sidecars.values():
            sidecar.await_ready("/-/healthy")
        wait_until(lambda: run.scrapes() >= 2, 60, "every sidecar scraped")
        run.poll()
        servers = run.simulate()
        began = polled = time.monotonic()

        def over() -> bool:
            nonlocal polled
            if time.monotonic() - polled >= POLL_S:
                polled = time.monotonic()
                run.poll()
            return time.monotonic() - began >= RUN_S

        wait_until(over, RUN_S + 30, "the scenarios")
        for server in servers:
            server.stop()
        # Nothing happens from here on: what the last page shows, Prometheus gets to see as well.
        run.poll()
        scraped = run.scrapes()
        wait_until(lambda: run.scrapes() >= scraped + 4, 30, "the last page scraped")
        run.end = time.time()
        run.remember()
        run.poll()
        yield run


def asked(run: Run, scenario: str, dashboard: str) -> dict[str, tuple[Query, bool]]:
    """Return each query of a dashboard for one device, and whether Prometheus has data for it."""
    window = Window(run.start, run.end)
    found: dict[str, tuple[Query, bool]] = {}
    for question in queries(DASHBOARDS[dashboard], window, {"device": [scenario]}, 1.0):
        if question.step_s > window.length_s:
            # Grafana's last point is a whole step, which may be before the run: ask for the next.
            question = question._replace(
                window=Window(run.start, run.end + question.step_s).aligned(question.step_s)
            )
        points = [value for series in ask(run.stack.prometheus.url, question) for _, value in series.points]
        key = f"{dashboard}: panel {question.place} {question.ref}".strip()
        found[key] = question, any(not math.isnan(value) for value in points)
    return found


@pytest.mark.timeout(180)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_query_has_data_exactly_where_it_should(run, scenario):
    wrong: dict[str, str] = {}
    for dashboard in DASHBOARDS:
        for place, (question, found) in asked(run, scenario, dashboard).items():
            instant = not question.step_s
            exposed = run.exposed[scenario]
            may = has_data(question.expression, exposed, instant)
            must = has_data(question.expression, exposed, instant, looks=2)
            if (found and not may) or (must and not found):
                wrong[place] = f"{'has' if found else 'no'} data: {question.expression}"
    assert not wrong, json.dumps(wrong, indent=1)


@pytest.mark.parametrize(("scenario", "dashboards"), HAPPENS.items(), ids=HAPPENS)
def test_what_a_scenario_is_about_is_seen(run, scenario, dashboards):
    for dashboard, titles in dashboards.items():
        shown = asked(run, scenario, dashboard)
        panels: dict[str, dict[str, Any]] = {
            panel["title"]: panel for panel in dashboard_json.panels(DASHBOARDS[dashboard])
        }
        for title in titles:
            panel = panels[title]
            refs = [f"{dashboard}: panel {panel['id']} {target['refId']}" for target in panel["targets"]]
            assert all(shown[ref][1] for ref in refs), title


@pytest.mark.parametrize("dashboard", ["streaming", "resumption"])
def test_every_query_about_speech_has_data_in_some_scenario(run, dashboard):
    seen: dict[str, bool] = {}
    for scenario in SCENARIOS:
        for place, (question, found) in asked(run, scenario, dashboard).items():
            if not any(own in question.expression for own in (SERVERS_OWN, EARS_OWN)):
                seen[place] = seen.get(place, False) or found
    assert [place for place, found in seen.items() if not found] == []
