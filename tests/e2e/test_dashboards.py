"""Every query of every dashboard, asked of a real Prometheus that scraped a real sidecar, an Orin and a model server."""

from __future__ import annotations

import json
import math
import signal
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from omniwatch import events as ev
from omniwatch.bundle import dashboard_lint, render
from omniwatch.settings import Settings
from omniwatch.spool import Spool
from omniwatch.stack import Stack, get
from scraped import model_server, orin
from waiting import wait_until

DASHBOARDS = {
    path.stem: json.loads(text)
    for path, text in render.render(Settings()).items()
    if path.parts[0] == "dashboards"
}
SILENT = {
    "model-server: panel 5 A": "a reason of failure has a series from its first request on",
    "model-server: panel 6 A": "so has a reason for no audio",
}
"""Queries that must be empty in this run, and why."""
WINDOW = {"__rate_interval": "20s", "__range": "60s", "__interval": "2s"}
CREEP_S, FRAME_S = 60.0, 0.08


def creeping(path: Path) -> None:
    """Write a minute of a stream whose voice falls behind, with a resume, losses, damage and short turns in it."""
    spool = Spool(path)
    start = time.time() - CREEP_S
    stream = "creeping"
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
        stack = parts.enter_context(Stack(directory / "stack", say=lambda line: None))
        device = parts.enter_context(orin(directory / "orin"))
        server = parts.enter_context(model_server())
        scrape_too(stack, {"omniwatch": device, "model_server": server})
        wait_until(lambda: len(stack.query("up == 1")) == 3, what="three targets that are up")
        stack.simulate("--scenario", "reconnect-jump", "--fault-at", "5", "--mend-at", "60")
        creeping(stack.events)
        for alert in ("CorruptFrames", "CodecDrift"):
            firing = f'ALERTS{{alertstate="firing",alertname="{alert}"}}'
            wait_until(lambda query=firing: stack.query(query), timeout=60, what=alert)
        yield stack


def scrape_too(stack: Stack, targets: dict[str, str]) -> None:
    path = stack.directory / "bundle/deploy/prometheus/prometheus.yml"
    config = yaml.safe_load(path.read_text())
    config["scrape_configs"] += [
        {
            "job_name": f"{job}_too",
            "static_configs": [{"targets": [address], "labels": {"device": "orin", "job": job}}],
        }
        for job, address in targets.items()
    ]
    path.write_text(yaml.safe_dump(config))
    stack.prometheus.process.send_signal(signal.SIGHUP)


def asked(stack: Stack, target: dict[str, Any]) -> list[list[Any]]:
    """Return the series of a target as Grafana would ask for them: their values, NaN left out."""
    query = dashboard_lint.filled(target["expr"], WINDOW)
    if target["instant"]:
        return [[series["value"][1]] for series in stack.query(query)]
    now = time.time()
    arguments = {"query": query, "start": now - 60, "end": now, "step": 2}
    address = f"{stack.prometheus.url}/api/v1/query_range?{urllib.parse.urlencode(arguments)}"
    found = json.loads(get(address))["data"]["result"]
    values = [[v for _, v in series["values"] if not math.isnan(float(v))] for series in found]
    return [series for series in values if series]


@pytest.mark.timeout(150)
@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_query_returns_data(stack, name):
    empty = {
        f"{name}: panel {panel['id']} {target['refId']}": target["expr"]
        for panel in dashboard_lint.panels(DASHBOARDS[name])
        for target in panel["targets"]
        if not asked(stack, target)
    }
    expected = {place for place in SILENT if place.startswith(f"{name}:")}
    assert set(empty) == expected, {place: empty.get(place, "has data") for place in set(empty) ^ expected}


@pytest.mark.timeout(150)
@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_variable_has_choices(stack, name):
    for variable in DASHBOARDS[name]["templating"]["list"][1:]:
        query = dashboard_lint.filled(variable["query"]["query"])
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
