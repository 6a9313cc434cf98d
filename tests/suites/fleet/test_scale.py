"""A small simulated fleet on real servers: nothing is lost on the way, and the dashboard and `fleet status` know everyone.

How fast and how large is measured by tests/bench/fleet.py, which does the same with more devices.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from helpers import fleet_answers as answers
from helpers.fleet_capacity import Capacity, Live, Load
from helpers.fleet_servers import Place
from omniwatch.centre import status
from omniwatch.centre.query import Centre
from omniwatch.desk.simulation.fleet import Plan, members

LOAD = Load(devices=200, minutes=0.5, history=10, interval_s=5)
AWAY_S = 300


class Run:
    """A run that is over: its servers, and how it went."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        capacity.fill()
        self.live: Live = capacity.live()
        self.engines = capacity.engines


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    with ExitStack() as ending:
        place = Place(tmp_path_factory.mktemp("scale"), ending)
        yield Run(Capacity(LOAD, place, lambda line: None))


ENGINES = pytest.mark.parametrize("engine", ["victoria-metrics", "prometheus"])


def test_every_sample_that_was_sent_is_there(run):
    live_samples = run.live.samples_per_s * LOAD.minutes * 60
    assert live_samples > LOAD.devices * run.capacity.rows
    assert answers.stored(run.capacity.victoria, run.capacity) == run.capacity.expected


@ENGINES
def test_the_dashboard_answers_with_data(run, engine):
    found = answers.dashboard(run.engines[engine], run.capacity)
    assert len(found) > 10
    assert sum(one.series > 0 for one in found) > len(found) / 2


@ENGINES
def test_status_knows_every_device_and_whose_clock_is_off(run, engine):
    rows = {row.device: row for row in account(run, engine)}
    fleet = members(Plan(LOAD.devices))
    assert set(rows) == {member.name for member in fleet}
    for member in fleet:
        row = rows[member.name]
        assert (row.site, row.model, row.release) == (member.site, member.model, member.release)
        assert row.last_seen_t == pytest.approx(time.time() + member.skew_s, abs=AWAY_S + 60)
        assert row.resume_success is None or 0 <= row.resume_success <= 1
    newest = max(rows[member.name].last_seen_t or 0 for member in fleet if not member.skew_s)
    ahead = {name for name, row in rows.items() if (row.last_seen_t or 0) > newest + 5}
    assert ahead == {member.name for member in fleet if member.skew_s > 0}
    assert ahead


def test_both_engines_tell_the_same(run):
    ours, theirs = ({row.device: row for row in account(run, engine)} for engine in run.engines)
    for name, row in ours.items():
        other = theirs[name]
        assert (row.site, row.model, row.release) == (other.site, other.model, other.release)
        # Of what was sent last the two may have taken different samples first.
        assert row.last_seen_t == pytest.approx(other.last_seen_t, abs=2 * LOAD.interval_s + 1)


def account(run: Run, engine: str) -> list[status.Row]:
    return status.rows(Centre(run.engines[engine].url).instant, [], time.time(), 900, 300, LOAD.interval_s)
