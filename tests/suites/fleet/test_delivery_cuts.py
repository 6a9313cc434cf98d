"""What people are told of a device's pages through short cuts of its link, and while the centre starts anew."""

from __future__ import annotations

import sys

import pytest

from helpers.fleet_delivery import MINUTE_S, Device, passed


@pytest.mark.timeout(400)
def test_cuts_of_three_seconds_change_nothing(centre):
    device = Device("tunnel", centre, "{about: Tunnels., rtt_ms: 60, outage: {every_s: 30, for_s: 3}}")
    for number in range(1, 4):
        device.faults.now = {"speech"}
        device.await_count("speech", number, number - 1, 60)
        passed(20)
        device.faults.now = set()
        device.await_count("speech", number, number, 90)


@pytest.mark.parametrize("force", [False, True], ids=["restarted", "killed"])
@pytest.mark.timeout(400)
def test_a_centre_that_starts_anew_ends_nothing(centre, capsys, force):
    device = Device("bus", centre)
    device.faults.now = {"speech", "sight"}
    device.await_count("speech", 1, 0, 60)
    device.await_count("sight", 1, 0, 60)
    for service in (centre.vmalert, centre.alertmanager, centre.store):
        service.process.kill() if force else service.stop()
        service.process.wait()
    device.faults.now = {"speech"}
    for service in (centre.store, centre.alertmanager, centre.vmalert):
        service.start()
    passed(6 * MINUTE_S)
    device.faults.now = set()
    passed(12 * MINUTE_S)
    again = 1 if force else 0
    with capsys.disabled():
        sys.stdout.write(
            f"{'killed' if force else 'restarted'}: {device.count('speech')}, {device.count('sight')}\n"
        )
    assert device.count("speech") == (1 + again, 1)
