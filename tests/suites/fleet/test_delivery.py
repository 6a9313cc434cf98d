"""What people are told of a device's pages through outages of its link: docs/fleet.md has the figures as a table."""

from __future__ import annotations

import sys

import pytest

from helpers.fleet_delivery import MINUTE_S, Device, passed
from helpers.fleet_servers import query
from helpers.waiting import wait_until

OUTAGES = (3, 10, 60)
"""Minutes of the field."""


@pytest.mark.timeout(900)
def test_an_outage_neither_ends_a_page_nor_repeats_it(centre, capsys):
    """Of each device: `speech` fires throughout, `server` begins meanwhile, `sight` ends meanwhile, `device` begins and ends.

    Near the end of the longest outage the centre itself stalls.
    """
    devices = {minutes: Device(f"away-{minutes}", centre) for minutes in OUTAGES}
    for device in devices.values():
        device.faults.now = {"speech", "sight"}
    for device in devices.values():
        device.await_count("speech", 1, 0, 60)
        device.await_count("sight", 1, 0, 60)
    for device in devices.values():
        wait_until(lambda device=device: _is_known(centre, device), 60, "the centre knows what fires")
        device.cut()
    passed(MINUTE_S)
    for device in devices.values():
        device.faults.now = {"speech", "server", "device"}
    passed(MINUTE_S)
    for device in devices.values():
        device.faults.now = {"speech", "server"}
    waited = 2
    for minutes, device in devices.items():
        passed((minutes - waited) * MINUTE_S)
        waited = minutes
        if minutes == OUTAGES[-1]:
            centre.stall(centre.settings.fleet.held_after_s)
            passed(MINUTE_S)
        assert device.count("speech") == device.count("sight") == (1, 0), "nothing ended while it was away"
        back = device.mend()
        began = device.await_count("server", 1, 0, 90)
        ended = device.await_count("sight", 1, 1, 180)
        with capsys.disabled():
            sys.stdout.write(
                f"{minutes} min: begin after {began - back:.1f} s, end after {ended - back:.1f} s\n"
            )
    for device in devices.values():
        device.faults.now = set()
        device.await_count("speech", 1, 1, 90)
        device.await_count("server", 1, 1, 90)
        assert device.count("device") == (0, 0)


def _is_known(centre, device) -> bool:
    found = query(centre.store, f'count(uplink:alert_firing{{device="{device.name}"}})')
    return bool(found) and found[0]["value"][1] == "2"
