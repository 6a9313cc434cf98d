"""Devices that are off as planned: their hours in the fleet file, and their own word."""

from __future__ import annotations

import http.server
import threading
from datetime import datetime

import pytest
from click.testing import CliRunner

from omniwatch.centre import hours
from omniwatch.centre.discovery import Catalogue
from omniwatch.centre.inventory import InventoryError, parse
from omniwatch.cli import main
from omniwatch.fleet import leaving
from omniwatch.settings import parse as settings

MONDAY = datetime(2026, 11, 23)


@pytest.mark.parametrize(
    ("text", "on", "off"),
    [
        ("05:00-23:30", ["23 05:00", "23 23:29", "29 12:00"], ["23 04:59", "23 23:30"]),
        ("mo-fr 05:00-23:30", ["27 05:00"], ["28 12:00", "29 12:00"]),
        ("sa 22:00-04:00", ["28 22:00", "29 03:59"], ["29 04:00", "28 21:59", "28 03:00"]),
        ("su 22:00-04:00", ["23 03:59", "29 23:00"], ["23 04:00"]),
        ("fr-mo 00:00-24:00", ["23 23:59", "27 00:00"], ["24 00:00", "26 23:59"]),
    ],
)
def test_hours_say_when_a_device_is_on(text, on, off):
    parsed = [hours.parse(text)]

    def at(moment: str) -> datetime:
        return datetime.strptime(f"2026-11-{moment}", "%Y-%m-%d %H:%M")

    assert [hours.is_on(parsed, at(moment)) for moment in on] == [True] * len(on)
    assert [hours.is_on(parsed, at(moment)) for moment in off] == [False] * len(off)


def test_a_device_without_hours_is_always_on():
    assert hours.is_on([], MONDAY)


@pytest.mark.parametrize("text", ["5:00-23:30", "mo 05:00", "xx 05:00-06:00", "24:00-25:00", "05:60-06:00"])
def test_hours_that_are_none_are_refused_by_their_place(text):
    with pytest.raises(InventoryError, match=r"devices\[0\]\.hours: expected like"):
        parse(f"devices: [{{name: a, address: h, hours: ['{text}']}}]")


def test_a_zone_that_is_none_is_refused():
    with pytest.raises(InventoryError, match='timezone: no time zone "Mars/Olympus" here'):
        parse("{timezone: Mars/Olympus, devices: []}")


def test_the_catalogue_says_which_devices_are_off_in_their_zone(tmp_path):
    path = tmp_path / "fleet.yaml"
    path.write_text(
        "timezone: Asia/Shanghai\ndevices:\n"
        "  - {name: day, address: a, hours: ['05:00-23:30']}\n"
        "  - {name: night, address: b, hours: ['22:00-06:00']}\n"
        "  - {name: always, address: c}\n"
    )
    noon_in_shanghai = datetime.fromisoformat("2026-11-23T12:00:00+08:00").timestamp()
    families = Catalogue(path, lambda: noon_in_shanghai).collect()
    (off,) = [family for family in families if family.name == "omniwatch_fleet_device_off"]
    assert {sample.labels["device"]: sample.value for sample in off.samples} == {"day": 0, "night": 1}


def test_the_word_has_the_labels_of_all_that_goes_up():
    told = settings("{site: {device: bus-017}, fleet: {site: north, release: '2026.11'}}")
    expected = (
        'uplink:off_seconds{site="north",device="bus-017",model="qwen3-omni",release="2026.11"} 12.500\n'
    )
    assert leaving.line(told, 12.5) == expected


def test_the_word_is_given_to_the_agent(tmp_path):
    taken: list[tuple[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append((self.path, self.rfile.read(int(self.headers["Content-Length"])).decode()))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    config = tmp_path / "omniwatch.yaml"
    address = f"127.0.0.1:{server.server_address[1]}"
    config.write_text(f"fleet: {{remote_write_url: 'https://c/w', agent_address: '{address}'}}")
    done = CliRunner().invoke(main, ["fleet", "off", "--config.file", str(config)])
    server.shutdown()
    server.server_close()
    assert done.exit_code == 0, done.output
    ((path, body),) = taken
    assert path == "/api/v1/import/prometheus"
    assert body.startswith('uplink:off_seconds{site="default",device="orin"')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "fleet.remote_write_url is empty"),
        ("fleet: {remote_write_url: 'https://c/w', agent: prometheus}", "`hours` in the fleet file"),
        ("fleet: {remote_write_url: 'https://c/w', agent_address: '127.0.0.1:1'}", "Connection refused"),
    ],
)
def test_a_word_that_nobody_takes_is_one_line(tmp_path, text, message):
    config = tmp_path / "omniwatch.yaml"
    config.write_text(text)
    done = CliRunner().invoke(main, ["fleet", "off", "--config.file", str(config)])
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
