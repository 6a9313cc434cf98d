"""What is wrong with a dashboard's JSON: the rules of Grafana's dashboard-linter, by their names, and this bundle's own.

Not among them: target-logql and target-logql-auto, since every data source here is Prometheus.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from omniwatch.bundle.promql import PromqlError, Selector, selectors

Model = dict[str, Any]
Rule = Callable[[Model], Iterator[str]]

COUNTING = ("rate", "irate", "increase")
WINDOWS = ("$__rate_interval", "$__range")
"""A count over the whole time shown is one number, of any resolution."""
NOW = "5m"
"""What a single value says of the present looks back over, however long the time shown."""
UNSCOPED = {"ALERTS": "an alert on what is missing has no job"}
"""Series that need no job, and why."""
UNITS = frozenset(
    [
        *(
            "none",
            "short",
            "percent",
            "percentunit",
            "ppm",
            "ms",
            "s",
            "bytes",
            "Bps",
            "celsius",
            "hertz",
            "watt",
        ),
        *("cps", "ops", "opm", "reqps", "reqpm", "eps", "epm"),
    ]
)
"""Those of Grafana's units that are in use; a misspelt one would show bare numbers."""
JOB, SITE, DEVICE = "job", "site", "device"
"""The labels that series are chosen by: on a device by job and device, at the centre of a fleet by site and device."""
_LABEL_VALUES = re.compile(r"label_values\((?P<series>.+),\s*(?P<label>\w+)\)")


def lint(model: Model) -> list[str]:
    """Return what every rule has to say, as "rule: where: what"."""
    return [f"{name}: {problem}" for name, rule in RULES.items() for problem in rule(model)]


def panels(model: Model) -> list[Model]:
    """Return the panels that show something, those of collapsed rows included."""
    found: list[Model] = []
    for panel in model.get("panels", []):
        found += panel.get("panels", []) if panel.get("type") == "row" else [panel]
    return found


def queries(model: Model) -> Iterator[tuple[str, str]]:
    """Yield each panel's queries, with their place: "panel 3 A"."""
    for panel in panels(model):
        for target in panel.get("targets", []):
            yield f"{_name(panel)} {target.get('refId', '')}".strip(), str(target.get("expr", ""))


def lost(address: str, models: dict[str, Model]) -> str:
    """Say what an address such as /d/UID?viewPanel=3 leads to that is not there; "" when it arrives."""
    parts = urlsplit(address)
    uid = re.search(r"/d/([^/]+)", parts.path)
    if uid is None or uid[1] not in models:
        return f"no dashboard {unquote(uid[1]) if uid else address}"
    for number in parse_qs(parts.query).get("viewPanel", []):
        known = {str(panel.get("id")) for panel in panels(models[uid[1]])}
        if number.removeprefix("panel-") not in known:
            return f"no panel {number} on dashboard {uid[1]}"
    return ""


def titles(address: str, models: dict[str, Model]) -> tuple[str, str] | None:
    """Return the names of the dashboard and of the panel that an address leads to; None where it leads to none."""
    parts = urlsplit(address)
    model = models.get(parts.path.rpartition("/")[2], {})
    for panel in panels(model):
        if parse_qs(parts.query).get("viewPanel") == [str(panel.get("id"))]:
            return str(model.get("title")).rpartition("/ ")[2], str(panel.get("title"))
    return None


def _name(panel: Model) -> str:
    return f"panel {panel.get('id')}"


def _variables(model: Model, kind: str) -> list[Model]:
    return [v for v in model.get("templating", {}).get("list", []) if v.get("type") == kind]


def _of_label(model: Model, label: str) -> list[str]:
    """Return the variables that list the values of a label."""
    found = []
    for variable in _variables(model, "query"):
        if label_values(variable)[1] == label:
            found.append(str(variable["name"]))
    return found


def label_values(variable: Model) -> tuple[str, str]:
    """Return the series and the label whose values a variable lists; both "" where it lists something else."""
    match = _LABEL_VALUES.fullmatch(_query(variable))
    return (match["series"], match["label"]) if match else ("", "")


def _query(variable: Model) -> str:
    query = variable.get("query", "")
    return str(query.get("query", "") if isinstance(query, dict) else query)


def _parsed(model: Model) -> Iterator[tuple[str, Selector]]:
    """Yield the selectors of every query that can be read; target-promql tells of the others."""
    for place, query in queries(model):
        try:
            found = selectors(query)
        except PromqlError:
            continue
        for selector in found:
            yield place, selector


def _template_datasource(model: Model) -> Iterator[str]:
    found = _variables(model, "datasource")
    if len(found) != 1 or found[0].get("name") != "datasource":
        yield "one variable of type datasource, named datasource, is expected"
    elif found[0].get("query") != "prometheus":
        yield f"the data source is {found[0].get('query')!r}, not prometheus"


def _scope(model: Model) -> str:
    """Return the label that stands above the device: what a device sends up has no job of its own."""
    return SITE if _of_label(model, SITE) else JOB


def _template(scope: Callable[[Model], str]) -> Rule:
    def rule(model: Model) -> Iterator[str]:
        label = scope(model)
        names = _of_label(model, label)
        if not names:
            yield f"no variable lists the label {label}"
        for variable in _variables(model, "query"):
            if variable["name"] in names:
                if not variable.get("label"):
                    yield f"{variable['name']}: no label"
                if not (variable.get("multi") and variable.get("includeAll")):
                    yield f"{variable['name']}: not several at once, or not all"
                if variable.get("allValue") != ".+":
                    yield f"{variable['name']}: allValue is {variable.get('allValue')!r}, not .+"

    return rule


def _template_label_promql(model: Model) -> Iterator[str]:
    for variable in _variables(model, "query"):
        match = _LABEL_VALUES.fullmatch(_query(variable))
        if match is None:
            yield f"{variable.get('name')}: {_query(variable)!r} is no label_values(series, label)"
            continue
        try:
            if len(selectors(match["series"])) != 1:
                yield f"{variable['name']}: {match['series']!r} is not one selector"
        except PromqlError as error:
            yield f"{variable['name']}: {error}"


def _template_reload(model: Model) -> Iterator[str]:
    for variable in _variables(model, "query"):
        if variable.get("refresh") != 2:
            yield f"{variable.get('name')}: not read anew when the time range changes"


def _panel_datasource(model: Model) -> Iterator[str]:
    for panel in panels(model):
        sources = [
            panel.get("datasource"),
            *(target.get("datasource") for target in panel.get("targets", [])),
        ]
        if any(not isinstance(source, dict) or source.get("uid") != "${datasource}" for source in sources):
            yield f"{_name(panel)}: not from the chosen data source"


def _panel_title_description(model: Model) -> Iterator[str]:
    for panel in panels(model):
        for field in ("title", "description"):
            if not str(panel.get(field) or "").strip():
                yield f"{_name(panel)}: no {field}"


def _panel_units(model: Model) -> Iterator[str]:
    for panel in panels(model):
        unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit")
        if unit not in UNITS:
            yield f"{_name(panel)}: unit {unit!r}"


def _panel_no_targets(model: Model) -> Iterator[str]:
    for panel in panels(model):
        if not panel.get("targets"):
            yield f"{_name(panel)}: no query"


def _target_promql(model: Model) -> Iterator[str]:
    for place, query in queries(model):
        try:
            if not selectors(query):
                yield f"{place}: no series in {query!r}"
        except PromqlError as error:
            yield f"{place}: {error}"


def _target_rate_interval(model: Model) -> Iterator[str]:
    single = {_name(panel) for panel in panels(model) if panel.get("type") == "stat"}
    for place, selector in _parsed(model):
        allowed = (*WINDOWS, NOW) if place.rpartition(" ")[0] in single else WINDOWS
        if selector.function in COUNTING and selector.window not in allowed:
            yield f"{place}: {selector.function}({selector.metric}[{selector.window}]), not [$__rate_interval]"


def _target_matcher(scope: Callable[[Model], str]) -> Rule:
    def rule(model: Model) -> Iterator[str]:
        label = scope(model)
        wanted = [f'=~"${name}"' for name in _of_label(model, label)]
        for place, selector in _parsed(model):
            exempt = selector.metric in UNSCOPED and label == JOB
            if not exempt and selector.matchers.get(label) not in wanted:
                yield f"{place}: {selector.metric} is not chosen by {label}"

    return rule


def _target_counter_agg(model: Model) -> Iterator[str]:
    for place, selector in _parsed(model):
        if selector.metric.endswith("_total") and selector.function not in COUNTING:
            yield f"{place}: {selector.metric} is a counter, outside of {', '.join(COUNTING)}"


def _uneditable(model: Model) -> Iterator[str]:
    if model.get("editable") is not False:
        yield "it can be edited by accident"


def _identity(model: Model) -> Iterator[str]:
    for field in ("uid", "title", "description"):
        if not str(model.get(field) or "").strip():
            yield f"no {field}"
    rows = [panel for panel in model.get("panels", []) if panel.get("type") == "row"]
    ids = [panel.get("id") for panel in (*rows, *panels(model))]
    for number in sorted({number for number in ids if ids.count(number) > 1}, key=str):
        yield f"panel id {number} is there twice"


RULES: dict[str, Rule] = {
    "template-datasource": _template_datasource,
    "template-job": _template(_scope),
    "template-instance": _template(lambda model: DEVICE),
    "template-label-promql": _template_label_promql,
    "template-on-time-change-reload": _template_reload,
    "panel-datasource": _panel_datasource,
    "panel-title-description": _panel_title_description,
    "panel-units": _panel_units,
    "panel-no-targets": _panel_no_targets,
    "target-promql": _target_promql,
    "target-rate-interval": _target_rate_interval,
    "target-job": _target_matcher(_scope),
    "target-instance": _target_matcher(lambda model: DEVICE),
    "target-counter-agg": _target_counter_agg,
    "uneditable-dashboard": _uneditable,
    "identity": _identity,
}
"""By dashboard-linter's names; `instance` is the label device here, which all jobs of a device share. identity is our own."""


def dead_ends(model: Model, models: dict[str, Model], pages: frozenset[str]) -> Iterator[str]:
    """Yield the links that lead to a dashboard or a runbook page (by file name) that the bundle does not have."""
    for panel in panels(model):
        overrides = panel.get("fieldConfig", {}).get("overrides", [])
        properties = [entry for override in overrides for entry in override.get("properties", [])]
        links = [*panel.get("links", []), *(p["value"] for p in properties if p.get("id") == "links")]
        for link in (link for group in links for link in (group if isinstance(group, list) else [group])):
            path = urlsplit(link["url"]).path
            page = unquote(path.rpartition("/")[2])
            if page.endswith(".md") and page not in pages:
                yield f"{_name(panel)}: no runbook page {page}"
            if path.startswith("/d/") and (nowhere := lost(link["url"], models)):
                yield f"{_name(panel)}: {nowhere}"


def as_rules(models: dict[str, Model]) -> Model:
    """Return every query as a recording rule named after its place, for a tool that knows all of PromQL."""
    rules = []
    for uid, model in sorted(models.items()):
        for place, query in queries(model):
            name = re.sub(r"\W+", "_", f"{uid}:{place}")
            rules.append({"record": name.replace("_", ":", 1), "expr": filled(query)})
    return {"groups": [{"name": "dashboards", "rules": rules}]}


def filled(query: str, values: dict[str, str] | None = None) -> str:
    """Put a value in the place of each of Grafana's variables: some window, and anything for what is chosen."""
    known = {"__rate_interval": "5m", "__range": "1h", "__interval": "15s"} | (values or {})
    return re.sub(r"\$(?:(\w+)|\{(\w+)\})", lambda found: known.get(found[1] or found[2], ".+"), query)
