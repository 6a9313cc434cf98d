"""`omniwatch demo --fleet`, to its end: the devices are heard, the site falls silent, one page comes and goes."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from helpers.needs import NEGATIVE_OFFSET
from omniwatch.cli import main

pytestmark = pytest.mark.needs(NEGATIVE_OFFSET)


@pytest.mark.timeout(240)
def test_a_fleet_is_shown_to_its_end():
    done = CliRunner().invoke(main, ["demo", "--fleet", "--once"])
    assert done.exit_code == 0, done.output
    steps = ["devices heard", "site cut off", "page received", "site is back", "resolved"]
    lines = done.stdout.splitlines()
    told = [line for line in lines if any(f"  {step}" in line for step in steps)]
    assert [next(step for step in steps if f"  {step}" in line) for line in told] == steps
    assert "SiteSilent: " in told[2]
    # Simulated devices have a page now and then.
    before, meanwhile, after = [line for line in lines if line.startswith("12 devices: ")]
    assert meanwhile == "12 devices: 12 silent"
    assert "silent" not in before + after
    assert "*" not in done.stdout, "a device is not in the fleet file"


def test_a_fleet_has_no_scenario():
    done = CliRunner().invoke(main, ["demo", "--fleet", "--scenario", "late-answers"])
    assert (done.exit_code, done.stderr) == (
        2,
        "Error: --fleet: has a course of its own, not one of --scenario\n",
    )
