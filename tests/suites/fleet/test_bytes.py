"""What the uplink of a device costs: bytes through the relay with two live streams, and series, at the field's own intervals."""

from __future__ import annotations

import json
import re
import sys
import time
import urllib.parse
from contextlib import ExitStack

import msgspec
import pytest

from helpers.fleet_uplinks import CLEAR, Running
from helpers.scraped import model_server, orin, scrape_too
from helpers.waiting import wait_until
from omniwatch.centre.uplink_metrics import IDENTITY, PREFIX
from omniwatch.desk.child_process import free_port, get
from omniwatch.desk.demo.local_stack import Stack
from omniwatch.settings import Settings

MEASURED_S = 210
MOST_BYTES_A_DAY = 10_000_000
MOST_SERIES = 300
SEGMENT_BYTES, HEADERS_BYTES = 1400, 52
"""TCP's payload in a packet of a mobile network, and TCP's and IPv4's headers with time stamps; each is acknowledged."""


@pytest.mark.timeout(330)
def test_a_device_with_two_streams_sends_less_than_ten_megabytes_a_day_and_few_series(tmp_path):
    with ExitStack() as ending:
        run = Running(tmp_path, ending)
        store = run.victoria()
        link = run.link("link", store.url.removeprefix("http://"), CLEAR)
        defaults = Settings()
        fleet = msgspec.structs.replace(
            defaults.fleet,
            remote_write_url=f"{link.url}/api/v1/write",
            agent_address=f"127.0.0.1:{free_port()}",
            site="warehouse-17",
            model="qwen3-omni-3b-int8",
            release="2026-11-r3",
        )
        settings = msgspec.structs.replace(defaults, fleet=fleet)
        stack = Stack(tmp_path / "device", settings, say=lambda line: None)
        ending.enter_context(stack)
        device = ending.enter_context(orin(tmp_path / "orin"))
        server = ending.enter_context(model_server())
        scrape_too(stack, {"omniwatch": device, "model_server": server})
        for scenario in ("steady", "progressive-drift"):
            stack.simulate("--scenario", scenario, "--duration", "100000")
        wait_until(lambda: stack.query("omni_streams >= 2"), 30, "two live streams")
        run.agent("uplink", stack.settings)
        began = time.monotonic()
        wait_until(lambda: time.monotonic() > began + MEASURED_S, MEASURED_S + 10)
        lasted = time.monotonic() - began
        query = urllib.parse.urlencode({"match[]": '{__name__=~".+",device!=""}'})
        found = json.loads(get(f"{store.url}/api/v1/series?{query}"))["data"]
        link.stop()
        carried = re.search(r"(\d+) bytes up, (\d+) bytes down", (tmp_path / "link.log").read_text())
    up, down = int(carried[1]), int(carried[2])
    packets = up / SEGMENT_BYTES + 2 * lasted / fleet.flush_s
    on_the_wire = up + down + 2 * packets * HEADERS_BYTES
    a_day = on_the_wire * 86_400 / lasted
    sys.stdout.write(
        f"{len(found)} series; {up} bytes up, {down} down in {lasted:.0f} s: {a_day / 1e6:.2f} MB a day with headers\n"
    )
    assert all(one["__name__"].startswith(PREFIX) and set(IDENTITY) <= set(one) for one in found)
    assert {"uplink:temperature_celsius:max", "uplink:drift_abs_ms:max"} <= {one["__name__"] for one in found}
    assert len(found) <= MOST_SERIES
    assert 0 < a_day <= MOST_BYTES_A_DAY
