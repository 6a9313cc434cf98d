"""A page that nobody can be told of, for neither the pager nor the centre is reached, is told once when one of them is."""

from __future__ import annotations

import pytest

from fleet_paging import ends_once, passed
from waiting import wait_until


@pytest.mark.timeout(600)
def test_what_could_not_be_told_to_anybody_is_told_once_by_whichever_is_reached_first(fleet):
    wait_until(fleet.reached, 240, "an uplink whose first attempts are forgotten")
    fleet.close_pager()
    fleet.up.stop()
    wait_until(lambda: not fleet.reached(), 90, "the uplink's trouble shows")
    server = fleet.drift()
    wait_until(lambda: fleet.stack.query('ALERTS{alertname="PagerUnreached",alertstate="firing"}'), 150)
    assert fleet.stack.query("page:taken") == []
    back = fleet.open_pager()
    wait_until(lambda: back.of("CodecDrift"), 60, "the page, from the device")
    fleet.up.start()
    wait_until(fleet.reached, 240, "the uplink is well again")
    passed(30)
    ends_once(server, back, fleet.central)
