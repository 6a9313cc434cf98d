"""The bridge under a flood of groups: what it remembers has a bound, and what it forgets is counted and said."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.fake_robots import webhook
from omniwatch.notify import open_groups, outbox
from omniwatch.notify.messages import Message
from omniwatch.notify.open_groups import OpenGroups
from omniwatch.notify.outbox import MAX_WAITING, MAX_WAITING_CHARS, Outbox
from omniwatch.notify.webhook_server import WebhookServer
from omniwatch.settings.receivers import Notify, Robot

MOST = 5


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[WebhookServer]:
    """Nothing answers at its robot's address."""
    (tmp_path / "url").write_text("http://127.0.0.1:1/send?key=tok")
    robot = Robot(kind="wecom", url_file=str(tmp_path / "url"))
    opened = WebhookServer(Notify(listen_address="127.0.0.1:0", robots=[robot]), state_dir=tmp_path / "state")
    yield opened
    opened.stop()


def value(bridge: WebhookServer, name: str, **labels: str) -> float:
    return bridge.metrics.registry.get_sample_value(f"omniwatch_notify_{name}", labels) or 0.0


def flood(bridge: WebhookServer, path: str, groups: int) -> None:
    for number in range(groups):
        assert bridge.answer(path, webhook(device=f"{path} {number}"))[0] == 200


def message(group: str, severity: str = "ticket", text: str = "") -> Message:
    return Message(group, severity, True, f"title of {group}", text)


def gone(box: Outbox, *messages: Message) -> list[str]:
    return [one.message.group for each in messages for one in box.put(each, 0.0)]


def test_messages_that_wait_have_a_bound_and_tickets_make_room_before_pages(
    bridge: WebhookServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(outbox, "MAX_WAITING", MOST)
    flood(bridge, "/page", 2)
    with caplog.at_level(logging.ERROR):
        flood(bridge, "/ticket", 9)
    assert value(bridge, "waiting", robot="wecom-0") == MOST
    assert value(bridge, "given_up_total", robot="wecom-0") == 6
    said = [record.fields for record in caplog.records if record.message == "message given up"]
    assert [one["error"] for one in said] == ["too many messages wait"] * 6
    (report,) = json.loads(bridge.answer("/deliveries.json", None)[2])["robots"]
    titles = " ".join(one["title"] for one in report["undelivered"])
    assert all(f"/page {number}" in titles for number in range(2))
    assert "/ticket 0" in titles


def test_the_oldest_goes_first() -> None:
    box = Outbox(1, 1.0, "en", lambda message: True)
    tickets = [message(f"t{number}") for number in range(MAX_WAITING - 1)]
    assert gone(box, message("p0", "page"), *tickets) == []
    assert gone(box, message("t0")) == [], "news of a group takes its place"
    assert gone(box, message("p1", "page"), message("t9999")) == ["t1", "t2"]
    pages = [message(f"q{number}", "page") for number in range(MAX_WAITING)]
    assert gone(box, *pages)[-2:] == ["p0", "p1"]
    assert gone(box, message("late")) == ["late"], "a ticket makes no page go"


def test_long_messages_have_a_bound_together() -> None:
    box = Outbox(1, 1.0, "en", lambda message: True)
    long = [message(f"g{number}", text="x" * (MAX_WAITING_CHARS // 4)) for number in range(6)]
    assert gone(box, *long) == ["g0", "g1", "g2"]
    assert gone(box, message("huge", text="x" * 2 * MAX_WAITING_CHARS)) == ["g3", "g4", "g5"]
    assert len(box) == 1, "the only one is tried whatever its length"


def test_what_was_kept_on_the_disk_has_the_same_bound(
    tmp_path: Path, bridge: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    flood(bridge, "/ticket", 9)
    bridge.stop()
    monkeypatch.setattr(outbox, "MAX_WAITING", MOST)
    robot = Robot(kind="wecom", url_file=str(tmp_path / "url"))
    again = WebhookServer(Notify(listen_address="127.0.0.1:0", robots=[robot]), state_dir=tmp_path / "state")
    try:
        assert value(again, "waiting", robot="wecom-0") == MOST
        assert value(again, "given_up_total", robot="wecom-0") == 4
    finally:
        again.stop()


def test_open_groups_have_a_bound(
    bridge: WebhookServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(open_groups, "MAX_OPEN", MOST)
    flood(bridge, "/ticket", MOST)
    assert value(bridge, "groups_forgotten_total") == 0
    flood(bridge, "/page", 2)
    assert value(bridge, "groups_forgotten_total") == 2
    assert caplog.messages.count("too many groups fire, the oldest is forgotten") == 2


def test_the_group_heard_of_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_groups, "MAX_OPEN", 3)
    groups = OpenGroups()
    forgotten = [groups.take(key, is_firing=True) for key in ("a", "b" * 65_536, "c", "a", "d")]
    assert forgotten == [0, 0, 0, 0, 1]
    assert [key in groups for key in ("a", "b" * 65_536, "c", "d")] == [True, False, True, True]
    assert groups.take("c", is_firing=False) == groups.take("e", is_firing=True) == 0
    assert len(groups) == 3
