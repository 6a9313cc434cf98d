"""What people are sent of alerts, by the rendered routes; `tests/e2e/test_notifications.py` holds the model against Alertmanager."""

from __future__ import annotations

import pytest

from omniwatch.desk.backtest import routes, site
from omniwatch.desk.backtest.errors import BacktestError
from omniwatch.desk.backtest.notifications import Notification, SentCounts, arrivals, counts, notifications
from omniwatch.desk.backtest.routes import Routing
from omniwatch.desk.backtest.states import Episode
from omniwatch.settings import parse

MINUTE, HOUR = 60.0, 3600.0


@pytest.fixture(scope="module")
def routing(tmp_path_factory) -> Routing:
    return site.rendered(parse("{}"), tmp_path_factory.mktemp("bundle")).routing


def sent(
    routing: Routing, *fired: tuple[str, str, float, float | None], until: float = 24 * HOUR
) -> list[Notification]:
    """What is sent of alerts, each given by name, severity, begin and end; those of one name are one alert."""
    lives: dict[tuple[str, str], list[Episode]] = {}
    for name, severity, begin, end in fired:
        lives.setdefault((name, severity), []).append(Episode(begin, 1, begin, begin, end))
    arriving = [
        one
        for (name, severity), episodes in lives.items()
        for one in arrivals(
            routing.labelled(name, (("device", "orin"), ("severity", severity))), episodes, 5, until
        )
    ]
    return notifications(routing, arriving, until)


def told(messages: list[Notification]) -> list[tuple[float, str, str]]:
    return [(one.t, one.receiver, one.status) for one in messages]


def test_a_page_leaves_at_once_and_ends_at_the_groups_next_turn(routing):
    assert told(sent(routing, ("CodecDrift", "page", 100, 130))) == [
        (100, "page", "firing"),
        (100 + 5 * MINUTE, "page", "resolved"),
    ]


def test_a_ticket_waits_half_a_minute_and_one_that_is_over_by_then_is_never_sent(routing):
    assert told(sent(routing, ("CPUThrottling", "ticket", 100, 900))) == [
        (130, "ticket", "firing"),
        (130 + 15 * MINUTE, "ticket", "resolved"),
    ]
    assert sent(routing, ("CPUThrottling", "ticket", 100, 120)) == []


def test_what_comes_and_goes_and_all_that_belongs_to_it_is_one_incident(routing):
    flaps = [("CodecDrift", "page", t, t + 20) for t in range(100, 480, 40)]
    found = sent(routing, *flaps, ("TokenRTT", "page", 130, 450))
    assert counts(found) == {"page": SentCounts(1, 3)}
    assert [one.t for one in found] == [100, 400, 700]


def test_another_kind_of_fault_is_an_incident_of_its_own(routing):
    found = sent(routing, ("SidecarBlind", "page", 150, 900), ("CodecDrift", "page", 100, 2000))
    assert [dict(one.group)["fault"] for one in found[:2]] == ["speech", "sight"]
    assert counts(found)["page"].incidents == 2


def test_what_a_page_explains_is_not_sent(routing):
    found = sent(routing, ("CodecDrift", "page", 100, 2000), ("DriftAhead", "ticket", 110, 1900))
    assert {one.receiver for one in found} == {"page"}


def test_a_page_that_goes_on_is_sent_again_after_more_than_an_hour_and_nothing_after_the_recording(routing):
    found = sent(routing, ("CodecDrift", "page", 0, None), until=3 * HOUR)
    assert [(one.t, one.repeats) for one in found] == [
        (0, False),
        (65 * MINUTE, True),
        (130 * MINUTE, True),
    ]


def test_what_comes_back_within_a_quarter_of_an_hour_finds_the_group_of_before(routing):
    """Prometheus says for 15 minutes that an alert is over, and each time Alertmanager has a group that has had its turn."""
    first = ("CodecDrift", "page", 0, 10)
    soon, late = (sent(routing, first, ("CodecDrift", "page", t, t + 10)) for t in (605, 1300))
    assert counts(soon) == counts(late) == {"page": SentCounts(2, 4)}
    assert late[2].t == 1300
    assert 605 <= soon[2].t <= 605 + 5 * MINUTE


def test_a_heartbeat_without_a_receiver_is_not_sent(routing):
    assert sent(routing, ("Watchdog", "none", 0, None)) == []


def test_a_fleets_alerts_are_grouped_as_at_its_centre(tmp_path):
    settings = parse("fleet: {remote_write_url: 'http://c:1', alertmanager_urls: ['http://c:2']}")
    centre = site.rendered(settings, tmp_path).routing
    found = sent(centre, ("DeviceSilent", "page", 0, 600))
    assert told(found)[0] == (30, "page", "firing")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("route: {receiver: a, match: {a: b}}\nreceivers: []", "unknown field `match`"),
        (
            "route: {receiver: a, matchers: ['a']}\nreceivers: []",
            "expected a matcher such as severity=\"page\", got 'a'",
        ),
        ("route: {receiver: a, group_wait: soon}\nreceivers: []", "expected a duration such as 15s"),
        ("receivers: []", "missing required field `route`"),
    ],
)
def test_a_configuration_that_is_not_understood_is_said_to_be(text, reason):
    with pytest.raises(BacktestError, match=r"^alertmanager\.yml") as error:
        routes.read(text, "{}")
    assert reason in str(error.value)
