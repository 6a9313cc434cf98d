"""Lint a dashboard's JSON: the rules of Grafana's dashboard-linter, by their names, and our own.

Not among them: target-logql and target-logql-auto, since every data source here is Prometheus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit

from omniwatch.bundle.dashboard_json import Model, panel_name, panels, queries
from omniwatch.desk.draw.queries import label_values, listing
from omniwatch.desk.promql import PromqlError, Selector, selectors

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


def lint(model: Model) -> list[str]:
    """Return what every rule has to say, as "rule: where: what"."""
    return [f"{rule}: {problem}" for rule, found in RULES.items() for problem in found(model)]


def titles(address: str, models: dict[str, Model]) -> tuple[str, str] | None:
    """Return the names of the dashboard and of the panel that an address leads to; None where it leads to none."""
    parts = urlsplit(address)
    model = models.get(parts.path.rpartition("/")[2], {})
    for panel in panels(model):
        if parse_qs(parts.query).get("viewPanel") == [str(panel.get("id"))]:
            return str(model.get("title")).rpartition("/ ")[2], str(panel.get("title"))
    return None


def _variables(model: Model, kind: str) -> list[Model]:
    return [v for v in model.get("templating", {}).get("list", []) if v.get("type") == kind]


def _of_label(model: Model, label: str) -> list[str]:
    """Return the variables that list the values of a label."""
    found = []
    for variable in _variables(model, "query"):
        if label_values(variable)[1] == label:
            found.append(str(variable["name"]))
    return found


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
        series, label = label_values(variable)
        if not label:
            yield f"{variable.get('name')}: {listing(variable)!r} is no label_values(series, label)"
            continue
        try:
            if len(selectors(series)) != 1:
                yield f"{variable['name']}: {series!r} is not one selector"
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
            yield f"{panel_name(panel)}: not from the chosen data source"


def _panel_title_description(model: Model) -> Iterator[str]:
    for panel in panels(model):
        for field in ("title", "description"):
            if not str(panel.get(field) or "").strip():
                yield f"{panel_name(panel)}: no {field}"


def _panel_units(model: Model) -> Iterator[str]:
    for panel in panels(model):
        unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit")
        if unit not in UNITS:
            yield f"{panel_name(panel)}: unit {unit!r}"


def _panel_no_targets(model: Model) -> Iterator[str]:
    for panel in panels(model):
        if not panel.get("targets"):
            yield f"{panel_name(panel)}: no query"


def _target_promql(model: Model) -> Iterator[str]:
    for place, query in queries(model):
        try:
            if not selectors(query):
                yield f"{place}: no series in {query!r}"
        except PromqlError as error:
            yield f"{place}: {error}"


def _target_rate_interval(model: Model) -> Iterator[str]:
    single = {panel_name(panel) for panel in panels(model) if panel.get("type") == "stat"}
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
