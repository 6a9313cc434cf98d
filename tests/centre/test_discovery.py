"""The served fleet file: what is answered while it changes, breaks, vanishes and comes back."""

from __future__ import annotations

import json
import logging
import resource

import pytest
from prometheus_client.parser import text_string_to_metric_families

from helpers.web_calls import call
from omniwatch.centre.discovery import Catalogue, make_app
from omniwatch.centre.inventory import InventoryError

ONE = "devices: [{name: a, address: h}]\n"
TWO = "devices: [{name: a, address: h}, {name: b, address: i}]\n"


class Served:
    """A fleet file and the application that serves it."""

    def __init__(self, path):
        self.path = path
        path.write_text(ONE)
        self.now = 100.0
        self.app = make_app(Catalogue(path, lambda: self.now))

    def names(self) -> list[str]:
        reply = call(self.app, "/targets")
        assert reply.status == 200
        return [group["labels"]["device"] for group in json.loads(reply.body)]

    def samples(self) -> dict[str, float]:
        families = text_string_to_metric_families(call(self.app, "/metrics").text)
        return {sample.name: sample.value for family in families for sample in family.samples}


@pytest.fixture
def served(tmp_path):
    return Served(tmp_path / "fleet.yaml")


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:9844", 200), ("[fd00::1]:9844", 200), ("centre.example", 200), ("evil.example:9844", 403)],
)
def test_the_targets_are_told_to_no_foreign_host(tmp_path, host, status):
    path = tmp_path / "fleet.yaml"
    path.write_text(ONE)
    app = make_app(Catalogue(path, lambda: 0.0), ["centre.example"])
    assert [call(app, page, host=host).status for page in ("/", "/targets")] == [status, status]
    assert call(app, "/metrics", host=host).status == 200


def test_the_answer_is_what_prometheus_demands(served):
    reply = call(served.app, "/targets")
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "application/json"
    assert json.loads(reply.body.decode("utf-8")) == [{"targets": ["h:9842"], "labels": {"device": "a"}}]
    assert call(served.app, "/targets", "POST").status == 405
    assert call(served.app, "/nothing").status == 404


def test_a_fleet_file_that_changes_is_read_anew(served):
    assert served.names() == ["a"]
    served.now = 200.0
    served.path.write_text(TWO)
    assert served.names() == ["a", "b"]
    assert served.samples() == {
        "omniwatch_fleet_devices": 2,
        "omniwatch_fleet_last_reload_successful": 1,
        "omniwatch_fleet_last_reload_success_timestamp_seconds": 200,
    }
    assert call(served.app, "/-/ready").body == b"2 devices\n"


def test_an_empty_fleet_is_an_empty_list(served):
    served.path.write_text("devices: []\n")
    assert served.names() == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: path.write_text(""), b'fleet.yaml: expected a mapping, got "NoneType"\n'),
        (
            lambda path: path.write_text("devices: [{name: b, addr"),
            b"fleet.yaml: line 1: did not find expected",
        ),
        (
            lambda path: path.write_text("devices: [{name: b}]"),
            b"fleet.yaml: devices[0].address: is missing\n",
        ),
        (
            lambda path: path.write_text("devices: [{name: b, address: h, release: 2026-02-30}]"),
            b"fleet.yaml: line 1: a value cannot be read",
        ),
        (lambda path: path.write_bytes(b"\xff"), b"fleet.yaml: not UTF-8"),
        (lambda path: path.unlink(), b"No such file"),
    ],
    ids=["empty", "cut short", "wrong", "no date", "binary", "gone"],
)
def test_a_file_that_does_not_hold_changes_nothing_and_is_told(served, change, said, caplog):
    caplog.set_level(logging.WARNING)
    served.names()
    change(served.path)
    assert served.names() == ["a"]
    assert served.names() == ["a"]
    assert len(caplog.records) == 1
    assert served.samples() == {
        "omniwatch_fleet_devices": 1,
        "omniwatch_fleet_last_reload_successful": 0,
        "omniwatch_fleet_last_reload_success_timestamp_seconds": 100,
    }
    ready = call(served.app, "/-/ready")
    assert ready.status == 503
    assert said in ready.body
    assert call(served.app, "/-/healthy").status == 200
    served.path.write_text(TWO)
    assert served.names() == ["a", "b"]
    assert call(served.app, "/-/ready").status == 200


def test_a_file_that_could_not_be_read_is_tried_again_though_nothing_of_it_changed(served, caplog):
    caplog.set_level(logging.WARNING)
    served.names()
    served.path.write_text(TWO)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        assert served.names() == served.names() == ["a"]
        ready = call(served.app, "/-/ready")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert (ready.status, len(caplog.records)) == (503, 1)
    assert b"Too many open files" in ready.body
    assert served.names() == ["a", "b"]


def test_the_same_file_put_back_is_good_again(served):
    good = served.path.rename(served.path.with_suffix(".kept"))
    assert call(served.app, "/-/ready").status == 503
    good.rename(served.path)
    assert call(served.app, "/-/ready").status == 200


def test_a_file_that_never_held_is_refused(tmp_path):
    with pytest.raises(InventoryError):
        Catalogue(tmp_path / "none.yaml", lambda: 0.0)
