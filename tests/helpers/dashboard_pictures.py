"""Draw the dashboards of docs/dashboards/ from a real Prometheus whose past was filled: `dashboard_pictures.py DIR`."""

from __future__ import annotations

import json
import math
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from helpers.incident import FAULT_S, LENGTH_S, OVERLOADED, WARM_S, pages
from omniwatch.bundle import dashboard_json, render
from omniwatch.desk.backtest import site
from omniwatch.desk.backtest.rules import Rule, read
from omniwatch.desk.backtest.scrapes import Page
from omniwatch.desk.backtest.states import Series, episodes, merged
from omniwatch.desk.backtest.tsdb import Tsdb, evaluations
from omniwatch.desk.draw import run
from omniwatch.desk.draw.window import Window
from omniwatch.desk.promql import selectors
from omniwatch.desk.simulation.fleet import Member, Plan, members, series
from omniwatch.settings import Alerts, Settings, Site

WINDOW = Window(1_768_478_400.0, 1_768_478_400.0 + LENGTH_S)
"""From 2026-01-15 12:00:00 UTC on."""
SETTINGS = Settings(alerts=Alerts(scrape_interval_s=5), site=Site(device=OVERLOADED))
AT_FAULT = WINDOW._replace(end=WINDOW.start + FAULT_S + 180)
"""When the overloaded device is in trouble: what a dashboard's first row is for."""
FLEET, CENTRE_S = 200, 600
"""So many devices; their past begins so much before the picture."""
APART = {
    "uplink:time_seconds": -0.013,
    "uplink:queue_bytes:max": 1e-3,
    "uplink:temperature_celsius:max": 1e-5,
}
"""How far these are from one device to the next: among equals topk takes anyone, each time another."""
SHOWN: dict[str, list[str]] = {
    "streaming": [OVERLOADED],
    "model-server": [OVERLOADED],
    "device": [OVERLOADED],
    "resumption": ["orin-2"],
}


def main(out: Path) -> None:
    models = {
        path.stem: json.loads(text)
        for path, text in render.render(SETTINGS).items()
        if path.parts[0] == "dashboards"
    }
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="omniwatch-pictures-") as name:
        directory = Path(name)
        rules = rules_of(directory / "bundle")
        tsdb = Tsdb(directory, SETTINGS.alerts.scrape_interval_s, SETTINGS.alerts.evaluation_interval_s)
        queries = [query for model in models.values() for _, query in dashboard_json.queries(model)]
        tsdb.fill(scraped(directory / "orin", asked_for([*queries, *(rule.expression for rule in rules)])))
        evaluate(tsdb, [rule for rule in rules if not rule.name.startswith("uplink:")])
        with tsdb:
            for dashboard, devices in SHOWN.items():
                draw(models[dashboard], out / f"{dashboard}.svg", tsdb.url, {"device": devices})
            for dashboard in ("streaming", "model-server"):
                now = first_row(models[dashboard])
                draw(now, out / f"{dashboard}-now.svg", tsdb.url, {"device": [OVERLOADED]}, AT_FAULT)
        (directory / "centre").mkdir()
        centre = centre_of(
            directory, asked_for(query for _, query in dashboard_json.queries(models["fleet"]))
        )
        with centre:
            draw(models["fleet"], out / "fleet.svg", centre.url, {})
            draw(first_row(models["fleet"]), out / "fleet-now.svg", centre.url, {})


def first_row(model: dict[str, Any]) -> dict[str, Any]:
    """Return a dashboard that has nothing but its first row."""
    rows = [n for n, panel in enumerate(model["panels"]) if panel["type"] == "row"]
    return {**model, "panels": model["panels"][: rows[1]], "annotations": {}}


def draw(
    model: dict[str, Any], path: Path, url: str, choices: dict[str, list[str]], window: Window = WINDOW
) -> None:
    scrape_s = SETTINGS.alerts.scrape_interval_s
    for drawn in run.draw({path: model}, url, window, choices, scrape_s):
        sys.stdout.write(f"{drawn}: {drawn.stat().st_size / 1000:.0f} kB\n")


def centre_of(directory: Path, names: set[str]) -> Tsdb:
    """Return the Prometheus of a fleet's centre: devices that fall silent and come back, and what its rules record of them."""
    fleet = members(Plan(devices=FLEET, skewed_share=0.0, outage_s=600.0))
    tsdb = Tsdb(directory / "centre", SETTINGS.fleet.interval_s, SETTINGS.fleet.interval_s)
    tsdb.fill(sent_up(fleet))
    rules = read(directory / "bundle/alerts/fleet.rules.yaml", SETTINGS.fleet.evaluation_s)
    # Live, nothing is there yet of the time that is looked ahead to; here everything is.
    told = [
        msgspec.structs.replace(rule, expression=rule.expression.replace(" offset -10m", ""))
        for rule in rules
        if rule.name in names
    ]
    evaluate(tsdb, told)
    return tsdb


def sent_up(fleet: list[Member]) -> Iterator[tuple[float, str]]:
    writers = {
        one.name: Page({"site": one.site, "device": one.name, "model": one.model, "release": one.release})
        for one in fleet
    }
    every = SETTINGS.fleet.interval_s
    number = {one.name: n for n, one in enumerate(fleet, 1)}
    for n in range(-CENTRE_S // every, LENGTH_S // every + 1):
        t = WINDOW.start + n * every
        lines = (
            writers[one.name].line(
                name,
                dict(re.findall(r'(\w+)="([^"]*)"', labels)),
                value + APART.get(name, 0.0) * number[one.name],
                t,
            )
            for one in fleet
            if one.answers(t)
            for name, labels, value in series(one, t)
        )
        yield t, "".join(lines)


def rules_of(bundle: Path) -> list[Rule]:
    """Return the rules of a device's Prometheus."""
    return [
        rule
        for path in site.rendered(SETTINGS, bundle).rule_files
        for rule in read(path, SETTINGS.alerts.evaluation_interval_s)
    ]


def asked_for(queries: Iterable[str]) -> set[str]:
    """Return the names of the series that queries ask for."""
    return {selector.metric for query in queries for selector in selectors(dashboard_json.filled(query))}


def scraped(directory: Path, names: set[str]) -> Iterator[tuple[float, str]]:
    """Yield the lines of each scrape, of the series that somebody asks for."""
    writers: dict[str, Page] = {}
    for page in pages(SETTINGS, WINDOW.start, directory):
        writer = writers.setdefault(page.target["instance"], Page(page.target))
        for family in page.families:
            family.samples = [sample for sample in family.samples if sample.name in names]
        yield page.t, writer.lines(page.families, page.t)


def evaluate(tsdb: Tsdb, rules: list[Rule]) -> None:
    """Put in what the rules record, those first that others rest on, and then the alerts that fire."""
    times = evaluations(WINDOW.start - WARM_S, WINDOW.end, SETTINGS.alerts.evaluation_interval_s)
    recording = [rule for rule in rules if not rule.is_alert]
    page = Page({})
    while recording:
        waiting = {rule.name for rule in recording}
        ready = [rule for rule in recording if not asked_for([rule.expression]) & (waiting - {rule.name})]
        with tsdb:
            lines = [
                (t, page.line(rule.name, {**unnamed(answer.labels), **rule.labels}, value, t))
                for rule in ready
                for answer in tsdb.answers(rule.expression, times)
                for t, value in answer.points
            ]
        tsdb.fill(sorted(lines))
        recording = [rule for rule in recording if rule not in ready]
    with tsdb:
        lines = [line for rule in rules if rule.is_alert for line in firing(tsdb, rule, times, page)]
    tsdb.fill(sorted(lines))


def firing(tsdb: Tsdb, rule: Rule, times: list[float], page: Page) -> Iterator[tuple[float, str]]:
    """Yield the series ALERTS of a rule while it fires."""
    answers = [
        Series({**answer.labels, **rule.labels}, answer.points)
        for answer in tsdb.answers(rule.expression, times)
    ]
    state = {"alertname": rule.name, "alertstate": "firing"}
    for labels, values in merged(answers).items():
        for episode in episodes(values, times, rule.hold):
            for t in times:
                if episode.firing_t is not None and episode.firing_t <= t < (episode.over_t or math.inf):
                    yield t, page.line("ALERTS", {**dict(labels), **state}, 1.0, t)


def unnamed(labels: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in labels.items() if name != "__name__"}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
