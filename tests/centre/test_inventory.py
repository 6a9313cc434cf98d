"""The fleet file, and the targets that are made of it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from omniwatch.centre import discovery, inventory
from omniwatch.centre.inventory import Device, InventoryError, Target
from omniwatch.cli import main

FLEET = """\
devices:
  - {name: bus-017, address: 10.8.0.17, site: north, model: orin-64, release: "2026.11"}
  - {name: bus-018, address: "[fd00::18]:9900"}
  - {name: bus-019, address: https://gw.example.org/bus-019/metrics, site: 北站}
"""
BUS_017 = '{"targets": ["10.8.0.17:9842"], "labels": {"device": "bus-017", "site": "north", "model": "orin-64", "release": "2026.11"}}'
NEW_LINE = "a\n"


def entry(**changes: object) -> str:
    values = {"name": "a", "address": "h:1"} | changes
    return json.dumps({key: value for key, value in values.items() if value is not None})


def test_a_device_is_scraped_where_its_address_says_and_labelled_with_what_is_known():
    devices = inventory.parse(FLEET).devices
    assert [device.target for device in devices] == [
        Target("10.8.0.17:9842"),
        Target("[fd00::18]:9900"),
        Target("gw.example.org", "https", "/bus-019/metrics"),
    ]
    assert [device.labels for device in devices] == [
        {"device": "bus-017", "site": "north", "model": "orin-64", "release": "2026.11"},
        {"device": "bus-018"},
        {"device": "bus-019", "site": "北站"},
    ]


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("h", Target("h:9842")),
        ("h:65535", Target("h:65535")),
        ("[::1]", Target("[::1]:9842")),
        ("http://h", Target("h")),
        ("https://h:1/a/b", Target("h:1", "https", "/a/b")),
    ],
)
def test_addresses(address, target):
    assert Device("a", address).target == target


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", 'expected a mapping, got "NoneType"'),
        ("[]", 'expected a mapping, got "list"'),
        ("{}", "devices: is missing"),
        ("devices: {a: 1}", 'devices: expected a list, got "dict"'),
        ("devices: !!set {a}", 'devices[0]: expected a mapping, got "a"'),
        ("devices: [", "line 1: did not find expected node content"),
        ("devices: [{name: a, address: h, release: 2026-02-30}]", "fleet.yaml: line 1: a value cannot be read"),
        ("devices: [{name: 0b_, address: h}]", "text that looks like a date or a number wants quotes"),
        ("devices: [{name: a, name: b, address: h}]", 'fleet.yaml: line 1: "name" is there twice'),
        ("{devices: [], devices: []}", '"devices" is there twice'),
        (f"devices: [{entry(address=None)}]", "devices[0].address: is missing"),
        (f"devices: [{entry()}, {entry(colour='red')}]", "devices[1].colour: no such setting"),
        (f"devices: [{entry(release=2026.11)}]", "devices[0].release: expected text of at most 128, got 2026.11"),
        (f"devices: [{entry(name='a b')}]", 'devices[0].name: expected text like ^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\\Z, got "a b"'),
        (f"devices: [{entry(name=NEW_LINE)}]", 'devices[0].name: expected text like'),
        (f"devices: [{entry()}, {entry(address='i')}]", 'devices[1].name: "a" is devices[0], too'),
        (
            f"devices: [{entry()}, {entry(name='b', address='http://h:1')}]",
            'devices[1].address: "http://h:1" is devices[0], too',
        ),
        *(
            (
                f"devices: [{entry(address=address)}]",
                f'devices[0].address: expected host:port or http(s)://host:port/path, got "{address}"',
            )
            for address in ("", "h:", "h:65536", "h/metrics", "ftp://h", "http://", "u:p@h:1", "http://h/a b", "h:1:2")
        ),
    ],
)  # fmt: skip
def test_what_does_not_hold_is_said_in_one_line(text, said):
    with pytest.raises(InventoryError) as caught:
        inventory.parse(text)
    message = str(caught.value)
    assert message.startswith("fleet.yaml: ")
    assert said in message
    assert "\n" not in message


def test_what_is_written_reads_back():
    devices = inventory.parse(FLEET).devices
    assert inventory.parse(inventory.dump(devices)).devices == devices


def test_the_document_has_a_line_for_each_device_in_the_order_of_the_file():
    text = discovery.document(inventory.parse(FLEET))
    lines = text.splitlines()
    assert lines[0] == "["
    assert lines[1] == f"{BUS_017},"
    assert json.loads(text)[1] == {"targets": ["[fd00::18]:9900"], "labels": {"device": "bus-018"}}
    assert json.loads(text)[2] == {
        "targets": ["gw.example.org"],
        "labels": {
            "device": "bus-019",
            "site": "北站",
            "__scheme__": "https",
            "__metrics_path__": "/bus-019/metrics",
        },
    }
    assert json.loads(discovery.document(inventory.Inventory([]))) == []


@pytest.fixture
def fleet(tmp_path):
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET)
    return path


def run(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, ["fleet", *map(str, words)])
    return done.exit_code, done.stdout, done.stderr


def test_targets_are_printed(fleet):
    assert run("targets", fleet) == (0, discovery.document(inventory.parse(FLEET)), "")


def test_targets_are_written_whole_and_only_when_they_change(fleet, tmp_path):
    out = tmp_path / "targets" / "omniwatch.json"
    assert run("targets", fleet, "--out", out, "--dry-run") == (0, f"would write: {out}\n", "")
    assert not out.exists()
    assert run("targets", fleet, "--out", out) == (0, f"wrote: {out}\n", "")
    first = out.stat()
    assert run("targets", fleet, "--out", out) == (0, f"unchanged: {out}\n", "")
    assert out.stat().st_ino == first.st_ino
    assert run("targets", fleet, "--out", out, "--diff") == (0, "", "")
    fleet.write_text(FLEET.replace("2026.11", "2026.12"))
    code, shown, _ = run("targets", fleet, "--out", out, "--diff")
    assert code == 1
    assert f"-{BUS_017}," in shown
    assert "+" + BUS_017.replace("2026.11", "2026.12") in shown
    assert run("targets", fleet, "--out", out) == (0, f"wrote: {out}\n", "")
    assert out.stat().st_ino != first.st_ino
    assert list(out.parent.iterdir()) == [out]


def test_a_fleet_file_that_does_not_hold_leaves_the_targets_as_they_were(fleet, tmp_path):
    out = tmp_path / "omniwatch.json"
    run("targets", fleet, "--out", out)
    before = out.read_bytes()
    fleet.write_text("devices:\n  - {name: a}\n")
    code, shown, said = run("targets", fleet, "--out", out)
    assert (code, shown, said) == (2, "", "Error: fleet.yaml: devices[0].address: is missing\n")
    assert out.read_bytes() == before


def test_what_a_user_can_mend_is_exit_2(fleet, tmp_path):
    assert run("targets", tmp_path / "none.yaml") == (
        2,
        "",
        f"Error: {tmp_path}/none.yaml: No such file or directory\n",
    )
    assert run("targets", fleet, "--out", fleet / "below.json")[0] == 2
    assert "names that end in .json" in run("targets", fleet, "--out", tmp_path / "targets.txt")[2]
    code, _, said = run("targets", fleet, "--diff")
    assert code == 2
    assert "give one" in said
