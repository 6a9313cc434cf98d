"""A device's page whose pager is not reached is told by the centre, and by nobody else when it is reached again."""

from __future__ import annotations

import pytest

from fleet_paging import ends_once, fingerprints, passed
from waiting import wait_until


@pytest.mark.timeout(700)
def test_the_centre_pages_for_a_device_whose_pager_is_not_reached(fleet):
    wait_until(fleet.reached, 240, "an uplink whose first attempts are forgotten")
    server = fleet.drift()
    wait_until(lambda: fleet.local.of("CodecDrift"), 60, "the page")
    passed(10)
    assert fleet.central.of("CodecDrift") == []
    server.stop()
    wait_until(lambda: fleet.local.of("CodecDrift", "resolved"), 150, "its end")

    fleet.close_pager()
    server = fleet.drift()
    wait_until(lambda: fleet.central.of("CodecDrift"), 240, "the page, from the centre")
    assert fleet.central.of("CodecDrift")[0].labels == fleet.local.of("CodecDrift")[0].labels
    (fingerprint,) = fingerprints(fleet.alertmanager, "CodecDrift")
    assert fingerprints(fleet.stack.alertmanager, "CodecDrift") == {fingerprint}, "to both it is one alert"
    # What Alertmanager was about to send when it was silenced it tries for ten seconds more.
    passed(15)
    back = fleet.open_pager()
    passed(90)
    ends_once(server, fleet.central, back)
