"""What a device keeps while the centre cannot be reached, and what arrives: vmagent and Prometheus' agent, side by side.

Fifteen times as fast as in the field: a sample a second instead of every 15 s, so that an outage of two minutes is one of half
an hour in samples. What the agents do not let be set (how long they wait before they try again) is as slow as ever.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from helpers.fleet_uplinks import CLEAR, Given, Running, arrived, joined, newest_s
from helpers.waiting import wait_until
from omniwatch.centre.uplink_metrics import FAMILIES
from omniwatch.desk.child_process import ChildProcess

OUTAGE_S = 120
CUTS_S = float(os.environ.get("CUTS_S", "450"))
"""How long the link that only has short cuts is watched; `make nightly` watches it for ten minutes."""
RESTART_AFTER_S = 60
FRESH_WITHIN_S = 60
CUTS = "{about: A cut of 3 s every 30 s., rtt_ms: 60, jitter_ms: 10, outage: {every_s: 30, for_s: 3}}"
SERIES = len(FAMILIES) - 1
"""All but alerts."""


class Case(NamedTuple):
    """A device with its way to the centre. `cut`: its link refuses, is silent, or only has the short cuts."""

    given: Given
    link: ChildProcess
    agent: ChildProcess
    cut: str
    restarts: bool


class Outcome(NamedTuple):
    """What came of it: samples of each series that were given and never arrived, and how soon what is new was seen."""

    given: int
    lost: int
    fresh_s: float
    series: int
    twice: int


CASES = {
    "cuts": ("vmagent", "short", False),
    "refused": ("vmagent", "refused", False),
    "silent": ("vmagent", "silent", False),
    "restarted": ("vmagent", "refused", True),
    "prometheus": ("prometheus", "refused", False),
    "prometheus-restarted": ("prometheus", "refused", True),
}


def cut(case: Case) -> None:
    if case.cut == "refused":
        case.link.stop()
    elif case.cut == "silent":
        case.link.process.send_signal(signal.SIGSTOP)


def mend(case: Case) -> None:
    if case.cut == "refused":
        case.link.start()
    elif case.cut == "silent":
        case.link.process.send_signal(signal.SIGCONT)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory):
    with ExitStack() as ending:
        run = Running(tmp_path_factory.mktemp("outage"), ending)
        store = run.victoria()
        cases: dict[str, Case] = {}
        for name, (agent, how, restarts) in CASES.items():
            given = run.given(name)
            link = run.link(
                f"link-{name}", store.url.removeprefix("http://"), CUTS if how == "short" else CLEAR
            )
            cases[name] = Case(
                given, link, run.agent(name, joined(link, given.address, agent=agent)), how, restarts
            )
        for name in cases:
            wait_until(lambda name=name: newest_s(store, name), 40, f"the first sample of {name}")
        began = time.monotonic()
        for case in cases.values():
            cut(case)
        wait_until(lambda: time.monotonic() > began + RESTART_AFTER_S, OUTAGE_S)
        for case in cases.values():
            if case.restarts:
                case.agent.process.kill()
                case.agent.process.wait()
                case.agent.start()
        wait_until(lambda: time.monotonic() > began + OUTAGE_S, 2 * OUTAGE_S)
        for case in cases.values():
            mend(case)
        mended, fresh = time.time(), {}

        def seen() -> bool:
            for name in cases.keys() - fresh.keys():
                if newest_s(store, name) > mended:
                    fresh[name] = time.time() - mended
            return cases.keys() == fresh.keys()

        wait_until(seen, 2 * FRESH_WITHIN_S, "what is new, of every device")
        wait_until(lambda: time.monotonic() > began + CUTS_S, CUTS_S)
        store.stop()
        down = time.monotonic()
        wait_until(lambda: time.monotonic() > down + 5, 20)
        store.start()
        store.await_ready("/health")
        again = time.time()
        wait_until(
            lambda: all(newest_s(store, name) > again for name in cases), 90, "what is new after the restart"
        )
        for case in cases.values():
            case.given.open = False
        still: dict[str, int] = {}

        def settled() -> bool:
            before = dict(still)
            still.update({name: sum(map(len, arrived(store, name).values())) for name in cases})
            return before == still and all(
                lost(store, name, case) == 0 for name, case in cases.items() if not case.restarts
            )

        try:
            wait_until(settled, 60)
        finally:
            found = {
                name: Outcome(
                    len(case.given.times),
                    lost(store, name, case),
                    fresh[name],
                    len(arrived(store, name)),
                    sum(len(times) - len(set(times)) for times in arrived(store, name).values()),
                )
                for name, case in cases.items()
            }
            sys.stdout.write("".join(f"{name}: {one}\n" for name, one in found.items()))
        yield found


def lost(store: ChildProcess, name: str, case: Case) -> int:
    """Return how many samples, of the series that lacks the most, were given and are not at the centre."""
    return max(len(set(case.given.times) - set(times)) for times in arrived(store, name).values())


@pytest.mark.timeout(900)
def test_every_series_of_every_device_is_at_the_centre(outcomes):
    assert {name: one.series for name, one in outcomes.items()} == dict.fromkeys(CASES, SERIES)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["cuts", "refused", "silent"])
def test_every_sample_that_vmagent_was_given_arrives_through_cuts_an_outage_and_a_restart_of_the_centre(
    outcomes, name
):
    assert outcomes[name].given > OUTAGE_S
    assert outcomes[name].lost == 0


@pytest.mark.timeout(900)
def test_a_device_that_loses_its_power_while_offline_loses_only_what_was_not_on_its_disk(outcomes):
    """Two blocks that are being sent, and one that is being filled: three flushes of one interval each."""
    assert outcomes["restarted"].lost <= 4


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["cuts", "refused", "silent", "restarted"])
def test_what_is_new_is_seen_within_a_minute_of_reconnection(outcomes, name):
    assert outcomes[name].fresh_s < FRESH_WITHIN_S


@pytest.mark.timeout(900)
def test_prometheus_agent_keeps_an_outage_only_as_long_as_it_runs(outcomes):
    """It is shown here so that nobody chooses it for what it is not."""
    assert outcomes["prometheus"].lost == 0
    assert outcomes["prometheus-restarted"].lost > RESTART_AFTER_S / 2
