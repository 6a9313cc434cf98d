"""The dashboards against Grafana's own model of them, whose Python package needs Python 3.11."""

from __future__ import annotations

from typing import get_args

import pytest

from helpers.dashboard_models import NAMES, model
from helpers.lints import dashboards as lints
from omniwatch.bundle import dashboard_json

pytest.importorskip("grafana_foundation_sdk", reason="grafana-foundation-sdk needs Python 3.11")

from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import dashboard as grafana
from grafana_foundation_sdk.models import prometheus, units


@pytest.mark.parametrize("name", NAMES)
def test_grafanas_own_model_reads_it_whole(name):
    register_default_plugins()
    written = model(name)
    read = grafana.Dashboard.from_json(written)
    assert read.uid == f"omni-{name}"
    assert read.templating.list_val[0].name == "datasource"
    shown = [item for item in read.panels if not isinstance(item, grafana.RowPanel)]
    assert [item.title for item in shown] == [item["title"] for item in dashboard_json.panels(written)]
    for item, source in zip(shown, dashboard_json.panels(written), strict=True):
        assert all(isinstance(target, prometheus.Dataquery) for target in item.targets)
        assert [target.expr for target in item.targets] == [target["expr"] for target in source["targets"]]
        assert item.field_config.defaults.unit == source["fieldConfig"]["defaults"]["unit"]


def test_the_units_are_grafanas():
    grafanas = {value for kind in units.__annotations__.values() for value in get_args(kind)}
    assert grafanas >= lints.UNITS
