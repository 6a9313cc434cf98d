"""A page that the centre told goes on through an outage of the uplink, and ends there."""

from __future__ import annotations

import pytest

from fleet_paging import AWAY_S, ends_once, passed
from waiting import wait_until


@pytest.mark.timeout(700)
def test_what_the_centre_told_goes_on_through_an_outage_and_ends_there(fleet):
    wait_until(fleet.reached, 240, "an uplink whose first attempts are forgotten")
    fleet.close_pager()
    server = fleet.drift()
    wait_until(lambda: fleet.central.of("CodecDrift"), 240, "the page, from the centre")
    wait_until(lambda: fleet.stack.query("page:taken offset 2m"), 180, "the centre has surely heard of it")
    fleet.up.stop()
    wait_until(lambda: fleet.central.of("DeviceSilent"), AWAY_S + 30, "DeviceSilent")
    passed(AWAY_S)
    assert fleet.raised()
    fleet.up.start()
    wait_until(lambda: fleet.central.of("DeviceSilent", "resolved"), 120, "the device is heard again")
    back = fleet.open_pager()
    passed(30)
    ends_once(server, fleet.central, back)
