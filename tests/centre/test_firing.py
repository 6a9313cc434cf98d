"""What fires at the centre by `fleet status` and by the dashboard, when nothing but the device's next samples says that it is over."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from helpers.bundles import promtool, rendered
from omniwatch.bundle import dashboard_json
from omniwatch.centre import status

pytestmark = pytest.mark.programs

WHO = 'site="n",device="{device}",model="m",release="1"'
PAGE = 'alertname="CodecDrift",severity="page",stream="0"'
TICKET = 'alertname="HardwareThrottling",severity="ticket"'


def expressions(model: dict[str, Any]) -> list[str]:
    """Return what the dashboard asks of the alerts that fire, for every site and device."""
    asked = [target["expr"] for panel in dashboard_json.panels(model) for target in panel["targets"]]
    asked += [one["expr"] for one in model["annotations"]["list"] if "expr" in one]
    return [one.replace("$site", ".+").replace("$device", ".+") for one in asked if "alert_firing" in one]


def test_what_is_over_fires_no_longer_and_what_a_device_fell_silent_with_does(tmp_path):
    """a's page and ticket end after a minute, b's when it is heard last; neither store has a marker of their end."""
    model = json.loads((rendered(tmp_path) / "dashboards/fleet.json").read_text())
    a, b = WHO.format(device="a"), WHO.format(device="b")
    series = {
        f"uplink:time_seconds{{{a}}}": "0+15x40",
        f"uplink:alert_firing{{{a},{PAGE}}}": "0+15x4",
        f"uplink:alert_firing{{{a},{TICKET}}}": "0+15x4",
        f"uplink:time_seconds{{{b}}}": "0+15x8",
        f"uplink:alert_firing{{{b},{PAGE}}}": "0+15x8",
        f"uplink:alert_firing{{{b},{TICKET}}}": "0+15x8",
    }
    asked = [status.FIRING.format(slack=30), *expressions(model)]
    assert len(asked) == 7
    tests = []
    for at, devices in (("90s", 2), ("120s", 1), ("400s", 1)):
        for one in asked:
            kinds = [kind for kind in ("page", "ticket") if f'severity="{kind}"' in one] or ["page", "ticket"]
            expected = [{"labels": "{}", "value": devices * len(kinds)}]
            tests.append({"expr": f"sum({one})", "eval_time": at, "exp_samples": expected})
    content = {
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": tests,
            }
        ],
    }
    (tmp_path / "here.test.yaml").write_text(yaml.safe_dump(content))
    done = promtool("test", "rules", "here.test.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
