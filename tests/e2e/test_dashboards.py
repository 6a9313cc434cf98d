"""Every query of every dashboard, asked of a real Prometheus that scraped a real sidecar, an Orin and a model server."""

from __future__ import annotations

import json
import signal
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
import yaml

from helpers.needs import NEGATIVE_OFFSET
from helpers.scraped import asked, model_server, orin, scrape_too
from helpers.waiting import wait_until
from omniwatch import events as ev
from omniwatch.bundle import dashboard_json, render
from omniwatch.desk.child_process import get
from omniwatch.desk.demo.local_stack import Stack
from omniwatch.settings import Settings
from omniwatch.tap.spool import Spool

DASHBOARDS = {
    path.stem: json.loads(text)
    for path, text in render.render(Settings()).items()
    if path.parts[0] == "dashboards"
}
NAMES = [
    pytest.param(name, marks=pytest.mark.needs(NEGATIVE_OFFSET)) if name == "fleet" else name
    for name in DASHBOARDS
]
SILENT = {
    "model-server: panel 5 A": "a reason of failure has a series from its first request on",
    "model-server: panel 6 A": "so has a reason for no audio",
    "device: panel 29 D": "no bridge to chat robots runs here",
    "device: panel 30 A": "no setting names a certificate",
    "fleet: panel 1 A": "no device is silent",
    "streaming: panel 40 B": "no kernel was asked that does not answer",
    "streaming: panel 41 A": "no turn here was bad and is over",
    **{
        f"streaming: panel {number} {query}": "nobody speaks up here"
        for number in (44, 45, 46)
        for query in "AB"
    },
    "fleet: panel 11 A": "no agent with a queue runs here",
    **{f"fleet: panel {number} A": "no turn here is over, so none was judged" for number in (21, 22, 23)},
}
"""Queries that must be empty in this run, and why."""
OFTEN = msgspec.structs.replace(
    Settings(), fleet=msgspec.structs.replace(Settings().fleet, evaluation_s=2, rule_delay_s=1)
)
"""A centre that looks at its fleet every other second."""
CREEP_S, FRAME_S = 60.0, 0.08


def creeping(path: Path, stream: str = "creeping") -> None:
    """Write a minute of a stream whose voice falls behind, with a resume, losses, damage and short turns in it."""
    spool = Spool(path)
    start = time.time() - CREEP_S
    spool.write(ev.StreamStart(t=start, stream=stream))
    for number in range(int(CREEP_S / FRAME_S)):
        t, turn = start + number * FRAME_S, number // 100 + 1
        if number % 100 == 0:
            if number:
                spool.write(ev.TurnEnd(t=t, stream=stream, turn=turn - 1, reason="stop"))
            spool.write(ev.TurnStart(t=t, stream=stream, turn=turn, chars=9))
            spool.write(ev.Rtt(t=t + 0.01, stream=stream, turn=turn, rtt_ms=600))
        if number % 50 == 49:
            spool.write(ev.Rtx(t=t, stream=stream, from_id=number - 3, count=3, result="hit"))
            continue
        spool.write(
            ev.Audio(
                t=t + 0.02,
                stream=stream,
                turn=turn,
                pts_ms=number * 80 - number * 0.05,
                video_pts_ms=number * 80.0,
                frame_id=number,
                expert_mask=3,
                codes=[5000] if number % 70 == 0 else [1],
            )
        )
    spool.write(
        ev.Resume(
            t=time.time(),
            stream=stream,
            last_good_id=700,
            result="hit",
            replayed=9,
            extra_ms=40,
            latency_ms=5,
        )
    )
    spool.write(ev.Realign(t=time.time(), stream=stream, shift_ms=-1))
    spool.close()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    directory = tmp_path_factory.mktemp("dashboards")
    with ExitStack() as parts:
        stack = parts.enter_context(Stack(directory / "stack", OFTEN, say=lambda line: None))
        device = parts.enter_context(orin(directory / "orin"))
        server = parts.enter_context(model_server())
        scrape_too(stack, {"omniwatch": device, "model_server": server})
        wait_until(lambda: len(stack.query("up == 1")) == 3, what="three targets that are up")
        its_own_centre(stack)
        stack.simulate("--scenario", "reconnect-jump", "--fault-at", "5", "--mend-at", "60")
        creeping(stack.events)
        wait_until(lambda: stack.query('uplink:answers_total{site="home"} > 0'), what="answers at the centre")
        creeping(stack.events, "again")
        for alert in ("FramesDamaged", "CodecDrift"):
            firing = f'ALERTS{{alertstate="firing",alertname="{alert}"}}'
            wait_until(lambda query=firing: stack.query(query), timeout=60, what=alert)
        wait_until(lambda: stack.query("device:in_breach:bool == 1"), timeout=30, what="the centre's records")
        yield stack


def its_own_centre(stack: Stack) -> None:
    """Let what the device would send up come back with the labels that it has at a centre, and the centre's rules see it."""
    path = stack.directory / "bundle/deploy/prometheus/prometheus.yml"
    config = yaml.safe_load(path.read_text())
    config["rule_files"].append("../../alerts/fleet.rules.yaml")
    labels = {"site": "home", "model": "omni", "release": "1"}
    target = {"targets": [stack.prometheus.url.removeprefix("http://")], "labels": labels}
    config["scrape_configs"].append(
        {
            "job_name": "centre",
            "honor_labels": True,
            "metrics_path": "/federate",
            "params": {"match[]": ['{__name__=~"uplink:.+"}']},
            "static_configs": [target],
            # The centre knows a device by its name: this Prometheus has what it recorded itself under the device's own.
            "metric_relabel_configs": [{"target_label": "device", "replacement": "away"}],
        }
    )
    path.write_text(yaml.safe_dump(config))
    stack.prometheus.process.send_signal(signal.SIGHUP)


@pytest.mark.timeout(150)
@pytest.mark.parametrize("name", NAMES)
def test_every_query_returns_data(stack, name):
    empty = {
        f"{name}: panel {panel['id']} {target['refId']}": target["expr"]
        for panel in dashboard_json.panels(DASHBOARDS[name])
        for target in panel["targets"]
        if not asked(stack, target)
    }
    expected = {place for place in SILENT if place.startswith(f"{name}:")}
    assert set(empty) == expected, {place: empty.get(place, "has data") for place in set(empty) ^ expected}


@pytest.mark.timeout(150)
@pytest.mark.parametrize("name", NAMES)
def test_every_variable_has_choices(stack, name):
    for variable in DASHBOARDS[name]["templating"]["list"][1:]:
        query = dashboard_json.filled(variable["query"]["query"])
        series, label = query.removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
        address = f"{stack.prometheus.url}/api/v1/label/{label}/values?" + urllib.parse.urlencode(
            {"match[]": series}
        )
        assert json.loads(get(address))["data"], variable["name"]


@pytest.mark.timeout(150)
def test_every_annotation_marks_what_happened(stack):
    annotations = {entry["name"]: entry["expr"] for entry in DASHBOARDS["streaming"]["annotations"]["list"]}
    marked = {
        name: bool(asked(stack, {"expr": expression, "instant": False}))
        for name, expression in annotations.items()
    }
    assert marked == {"Pages": True, "Tickets": True, "Resumes": True}
