"""Realtime sessions among clients that are open at once: no one ends, takes or crowds out what is another's."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from helpers.duplex_session import commit, created, duplex, hit, resume
from helpers.scripted_tap import answers, says
from helpers.session_takeovers import Client, Stage, play
from omniwatch import events as ev
from omniwatch.tap.sessions import MAX_LEFT

FIRST, SECOND = (f"duplex-{number}c9e0b7a1d4a55" for number in "12")
PLAYS = 100
"""Plays here, from a seed; `make adversary` plays them for minutes."""


def ends(events: list[ev.Event]) -> list[tuple[str, str]]:
    return [(event.stream, event.reason) for event in events if isinstance(event, ev.StreamEnd)]


def left(stage: Stage, session: str, **whose: Any) -> str:
    """Have a client begin a session and go. Returns its stream."""
    client = Client(stage, **whose)
    client.begins(session)
    client.leaves()
    return client.stream


@pytest.mark.parametrize("key", [None, "a"])
def test_a_live_stream_is_not_ended_by_who_takes_up_what_its_connection_carried_before(
    key: str | None,
) -> None:
    """The server began a session on the connection before it took up the one that the client had asked for."""
    stage = Stage()
    left(stage, FIRST, key=key)
    client = Client(stage, key)
    client.goes(resume(0, session=FIRST), created(0, SECOND), answers(0, **hit(FIRST)))
    other = Client(stage, key)
    assert ends(other.takes_up(SECOND)) == []
    assert [event.stream for event in client.goes(commit(1), duplex(1, 80, 80))] == [client.stream] * 2
    assert other.stream != client.stream


def test_a_live_stream_is_not_ended_by_who_takes_up_its_connections_first_of_two_sessions() -> None:
    stage = Stage()
    client, other = Client(stage), Client(stage)
    client.begins(FIRST)
    client.begins(SECOND)
    assert ends(other.takes_up(FIRST)) == []
    assert client.goes(commit(1), duplex(1, 80, 80))
    assert ends(Client(stage).takes_up(SECOND)) == [(client.stream, "replaced")]


@pytest.mark.parametrize("is_live", [True, False], ids=["live", "left"])
@pytest.mark.parametrize(
    "flood",
    [
        lambda number: {"key": "b"},
        lambda number: {"key": f"made up {number}"},
        lambda number: {"key": "b", "address": f"198.51.{number // 256}.{number % 256}"},
        lambda number: {"key": "a"},
        lambda number: {"key": "a", "address": f"2001:db8:0:7::{number:x}"},
    ],
    ids=["one-key", "a-key-each", "an-address-each", "the-same-key-from-elsewhere", "a-network"],
)
def test_a_flood_of_sessions_makes_the_tap_forget_no_other_clients(flood: Any, is_live: bool) -> None:
    stage = Stage()
    own: dict[str, Any] = {"key": "a", "address": "203.0.113.9"}
    client = Client(stage, **own)
    client.begins(FIRST)
    if not is_live:
        client.leaves()
    for number in range(3 * MAX_LEFT):
        left(stage, f"duplex-flood-{number}", **{"address": "192.0.2.66", **flood(number)})
    again = Client(stage, **own)
    events = again.takes_up(FIRST)
    assert again.stream == client.stream
    assert ends(events) == ([(client.stream, "replaced")] if is_live else [])
    assert len(stage.context.sessions) <= MAX_LEFT + 1


def test_of_equals_the_one_left_longest_ago_is_forgotten() -> None:
    stage = Stage()
    streams = [left(stage, f"duplex-{number:016}", key="a") for number in range(MAX_LEFT)]
    back = Client(stage, "a")
    back.takes_up("duplex-0000000000000000")
    back.leaves()
    left(stage, FIRST, key="a")
    found = [stage.find(f"duplex-{number:016}") for number in range(3)]
    assert [one and one.stream_events.name for one in found] == [streams[0], None, streams[2]]


def test_live_sessions_are_all_kept_however_many() -> None:
    stage = Stage()
    clients = [Client(stage, "b") for _ in range(2 * MAX_LEFT)]
    for number, client in enumerate(clients):
        client.begins(f"duplex-{number:016}")
    assert all(stage.find(client.session) for client in clients)
    for client in clients:
        client.leaves()
    assert len(stage.context.sessions) == MAX_LEFT


def test_a_client_that_takes_up_what_it_carries_itself_goes_on() -> None:
    stage = Stage()
    client = Client(stage)
    client.goes(resume(0, session=FIRST), created(0, FIRST), answers(0, **hit(FIRST)))
    assert ends(stage.events) == []
    assert client.goes(commit(1), duplex(1, 80, 80))
    assert ends(client.leaves()) == [(client.stream, "disconnect")]


def test_of_two_that_take_a_session_up_at_once_the_latter_carries_it() -> None:
    stage = Stage()
    stream = left(stage, FIRST, key="a")
    one, two = Client(stage, "a"), Client(stage, "a")
    for client in (one, two):
        client.goes(resume(0, session=FIRST))
    one.goes(answers(0, **hit(FIRST)))
    assert ends(two.goes(answers(0, **hit(FIRST)))) == [(stream, "replaced")]
    assert one.goes(commit(1), duplex(1, 80, 80)) == one.leaves() == []
    assert {event.stream for event in two.goes(commit(1), duplex(1, 80, 80))} == {stream}


def test_what_another_keys_connection_is_told_of_a_session_leaves_it_as_it_is() -> None:
    stage = Stage()
    client = Client(stage, "a")
    client.begins(FIRST)
    for first in ([], [resume(0, session=FIRST)], [says(0, type="response.create")]):
        for answer in (created(0, FIRST), answers(0, **hit(FIRST))):
            thief = Client(stage, "b")
            assert ends(thief.goes(*first, answer)) == []
            assert thief.stream != client.stream
            thief.leaves()
    known = stage.find(FIRST)
    assert known is not None
    assert known.holder is client.observer


def test_no_client_chooses_the_id_that_the_server_gives_to_another() -> None:
    """Chosen beforehand, it would take the other's reports."""
    stage = Stage()
    squatter = Client(stage, "b", query=f"omniwatch_stream={FIRST}")
    client = Client(stage, "a")
    client.begins(FIRST)
    assert reported_on(stage, FIRST) == client.stream
    Client(stage, "b", query=f"omniwatch_stream={FIRST}")
    squatter.leaves()
    assert reported_on(stage, FIRST) == client.stream
    client.leaves()
    assert reported_on(stage, FIRST) is None


def test_a_client_can_report_under_the_ids_of_its_session_after_it_came_back() -> None:
    stage = Stage()
    stream = left(stage, FIRST, key="a")
    client = Client(stage, "a", query="omniwatch_stream=chosen-by-the-client")
    client.takes_up(FIRST)
    assert reported_on(stage, "chosen-by-the-client") == reported_on(stage, FIRST) == stream
    client.begins(SECOND)
    assert (reported_on(stage, FIRST), reported_on(stage, SECOND)) == (None, stream)
    client.leaves()
    assert not any(stage.context.reports.find(token) for token in client.ids)


def test_sessions_that_change_hands_at_random() -> None:
    seed = random.randrange(1 << 30)
    counts: Counter[str] = Counter()
    assert not [wrong for number in range(seed, seed + PLAYS) if (wrong := play(number, counts))]
    assert counts["taken up"] > 0


def reported_on(stage: Stage, token: str) -> str | None:
    stream_events = stage.context.reports.find(token)
    return stream_events.name if stream_events else None
