"""A page goes on through an outage of the uplink, and who told of it tells of its end."""

from __future__ import annotations

import pytest

from fleet_paging import AWAY_S, passed
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
    server.stop()
    wait_until(lambda: fleet.local.of("CodecDrift", "resolved"), 150, "its end")
    passed(30)
    assert len(fleet.local.of("CodecDrift")) == len(fleet.local.of("CodecDrift", "resolved")) == 1
    assert fleet.central.of("CodecDrift") == []


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
    server.stop()
    wait_until(lambda: fleet.central.of("CodecDrift", "resolved"), 150, "its end")
    passed(30)
    assert len(fleet.central.of("CodecDrift")) == len(fleet.central.of("CodecDrift", "resolved")) == 1
    assert back.of("CodecDrift") == back.of("CodecDrift", "resolved") == []
