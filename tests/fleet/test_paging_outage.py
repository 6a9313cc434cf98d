"""A page that the device told goes on through an outage of the uplink, and ends there."""

from __future__ import annotations

import pytest

from fleet_paging import AWAY_S, ends_once, passed
from waiting import wait_until


@pytest.mark.timeout(480)
def test_what_the_device_told_the_centre_does_not_tell_after_an_outage(fleet):
    wait_until(fleet.reached, 240, "an uplink whose first attempts are forgotten")
    server = fleet.drift()
    wait_until(lambda: fleet.local.of("CodecDrift"), 60, "the page")
    fleet.up.stop()
    wait_until(lambda: fleet.central.of("DeviceSilent"), AWAY_S + 30, "DeviceSilent")
    fleet.up.start()
    wait_until(lambda: fleet.central.of("DeviceSilent", "resolved"), 120, "the device is heard again")
    passed(30)
    ends_once(server, fleet.local, fleet.central)
