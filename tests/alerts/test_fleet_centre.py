"""The centre's rules where the usual evaluation is not enough: it was away, or a device has moved."""

from __future__ import annotations

import pytest

from helpers.bundles import hold, rendered, sample
from helpers.needs import NEGATIVE_OFFSET
from omniwatch.settings import Settings

pytestmark = pytest.mark.needs(NEGATIVE_OFFSET)

WHO = 'site="{site}",device="{device}",model="omni",release="1"'
CENTRES = ["alerts/fleet.rules.yaml", "deploy/fleet/centre-held.rules.yaml"]


def device(name: str, site: str, values: str) -> dict[str, str]:
    """Return what comes of a device: its clock."""
    return {f"uplink:time_seconds{{{WHO.format(site=site, device=name)}}}": values}


def test_the_first_look_of_a_centre_that_was_away_finds_no_device_silent(tmp_path):
    """It has an evaluation in ten minutes here: each sees the fleet as after an absence, a word of each device and no second one."""
    rendered(tmp_path)
    series = device("a", "n", "0 600")
    expected = [
        sample(
            "time() - device:last_seen:timestamp_seconds",
            "20m",
            (f"{{{WHO.format(site='n', device='a')}}}", 600),
        )
    ]
    alerts = [{"eval_time": at, "alertname": "DeviceSilent", "exp_alerts": []} for at in ("20m", "30m")]
    hold(tmp_path, CENTRES[:1], 600, series, promql_expr_test=expected, alert_rule_test=alerts)


def test_a_device_that_died_while_the_centre_was_away_is_remembered(tmp_path):
    """Evaluations are two hours apart here, more than device:last_seen itself is carried on over."""
    rendered(tmp_path)
    who = WHO.format(site="n", device="a")
    found = sample(
        "device:last_seen:timestamp_seconds", "6h", (f"device:last_seen:timestamp_seconds{{{who}}}", 100)
    )
    series = {f"device:remembered:timestamp_seconds{{{who}}}": "100 _x9"}
    hold(tmp_path, CENTRES, 7200, series, promql_expr_test=[found])


def test_what_is_heard_is_remembered_for_as_long_as_it_may_be_silent(tmp_path):
    within_s = Settings().fleet.silent_within_s
    rendered(tmp_path)
    who = WHO.format(site="n", device="a")
    heard = sample(
        "device:remembered:timestamp_seconds", "2h", (f"device:remembered:timestamp_seconds{{{who}}}", 1200)
    )
    forgotten = sample("device:remembered:timestamp_seconds", f"{within_s + 1200}s")
    hold(tmp_path, CENTRES, 600, device("a", "n", "0 600 1200"), promql_expr_test=[heard, forgotten])
