"""What Alertmanager would have sent, and when: alerts that fire and end, grouped, silenced by each other, repeated.

As Alertmanager 0.25 does it (dispatch, inhibit, notify/DedupStage). It takes no time to send, and nothing fails. What arrives at
one moment is taken to be there before anything is sent at that moment; a real one may send the first of a group alone
where `group_wait` is 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import floor, inf
from typing import NamedTuple

from omniwatch.desk.backtest.routes import Route, Routing
from omniwatch.desk.backtest.states import Episode, Labels

SWEEP_S = 30.0
"""How often Alertmanager forgets groups without alerts; until then what joins one waits for the group's next turn."""
RESEND_S = 60.0
"""Prometheus sends an alert again at the first evaluation more than this after the last time."""
RESOLVED_KEPT_S = 900.0
"""For so long it goes on to say that an alert is over."""


class Arrival(NamedTuple):
    """An alert as Prometheus sends it: firing since `starts_t`, or over."""

    t: float
    labels: Labels
    firing: bool
    starts_t: float


class Notification(NamedTuple):
    """One message to one receiver: the alerts that are in it."""

    t: float
    receiver: str
    group: Labels
    firing: tuple[Labels, ...]
    resolved: tuple[Labels, ...]
    begins: bool
    """It begins an incident: nothing of its group was known to fire."""
    repeats: bool
    """Nothing is new: `repeat_interval` has passed."""

    @property
    def status(self) -> str:
        """What the message says of the group: "firing" or "resolved"."""
        return "firing" if self.firing else "resolved"


class SentCounts(NamedTuple):
    """What a receiver was sent."""

    incidents: int
    messages: int


def counts(sent: Iterable[Notification]) -> dict[str, SentCounts]:
    """Return how many incidents and messages each receiver was sent. An incident lasts from a group's first message to its end."""
    begun: Counter[str] = Counter()
    messages: Counter[str] = Counter()
    for one in sent:
        messages[one.receiver] += 1
        begun[one.receiver] += one.begins
    return {name: SentCounts(begun[name], number) for name, number in sorted(messages.items())}


def arrivals(
    labels: Labels, episodes: Sequence[Episode], interval_s: float, until_t: float
) -> Iterator[Arrival]:
    """Yield what Prometheus sends of one alert whose rule is evaluated each `interval_s`."""
    again_s = (floor(RESEND_S / interval_s) + 1) * interval_s
    for number, episode in enumerate(episodes):
        if episode.firing_t is None:
            continue
        follows = episodes[number + 1 : number + 2]
        over_t = inf if episode.over_t is None else episode.over_t
        forgotten_t = min([over_t + RESOLVED_KEPT_S, *(one.pending_t for one in follows)])
        for firing, first_t, last_t in ((True, episode.firing_t, over_t), (False, over_t, forgotten_t)):
            t = first_t
            while t <= until_t and (t < last_t or t == first_t):
                yield Arrival(t, labels, firing, episode.firing_t)
                t += again_s


@dataclass
class _Group:
    route: Route
    labels: Labels
    next_t: float
    flushed: bool = False
    alerts: dict[Labels, bool] = field(default_factory=dict)
    """Whether each still fires."""
    empty_t: float = 0.0
    """Since when it has had no alerts."""


class _Logged(NamedTuple):
    t: float
    firing: frozenset[Labels]
    resolved: frozenset[Labels]


class Dispatcher:
    """One Alertmanager. `swept_t` is any time at which it sweeps: whole multiples of 30 s from its start."""

    def __init__(self, routing: Routing, swept_t: float = 0.0) -> None:
        self._routing = routing
        self._swept_t = swept_t
        self._groups: dict[tuple[tuple[int, ...], Labels], _Group] = {}
        self._log: dict[tuple[tuple[int, ...], Labels], _Logged] = {}
        self._active: set[Labels] = set()

    def take(self, batch: Iterable[Arrival], t: float) -> None:
        """Take alerts that arrive at t."""
        for arrival in batch:
            (self._active.add if arrival.firing else self._active.discard)(arrival.labels)
            named = dict(arrival.labels)
            for route in self._routing.root.taken_by(named):
                group = self._group(route, route.group_of(named), t)
                group.alerts[arrival.labels] = arrival.firing
                if not group.flushed and arrival.starts_t + route.wait_s < t:
                    group.next_t = t

    def _group(self, route: Route, labels: Labels, t: float) -> _Group:
        key = (route.path, labels)
        group = self._groups.get(key)
        if group is None or (not group.alerts and self._swept(group.empty_t, t)):
            group = self._groups[key] = _Group(route, labels, t + route.wait_s)
        elif not group.alerts:
            while group.next_t < t:
                group.next_t += route.interval_s
        return group

    def _swept(self, since_t: float, t: float) -> bool:
        return floor((t - self._swept_t) / SWEEP_S) > floor((since_t - self._swept_t) / SWEEP_S)

    def due_t(self) -> float:
        """Return when the next group has its turn; infinity while there is none."""
        return min((group.next_t for group in self._groups.values() if group.alerts), default=inf)

    def send(self, t: float) -> Iterator[Notification]:
        """Give each group its turn that is due at t."""
        for key, group in self._groups.items():
            if group.alerts and group.next_t <= t:
                yield from self._turn(key, group)

    def _turn(self, key: tuple[tuple[int, ...], Labels], group: _Group) -> Iterator[Notification]:
        t, group.flushed = group.next_t, True
        group.next_t += group.route.interval_s
        heard = {labels: firing for labels, firing in group.alerts.items() if not self._silenced(labels)}
        receiver = group.route.receiver
        if heard and receiver in self._routing.sends_resolved:
            yield from self._tell(key, heard, receiver, group, t)
        group.alerts = {labels: firing for labels, firing in group.alerts.items() if firing}
        group.empty_t = t

    def _silenced(self, labels: Labels) -> bool:
        target = dict(labels)
        return any(
            rule.silences(dict(source), target)
            for rule in self._routing.inhibitions
            for source in self._active
        )

    def _tell(
        self,
        key: tuple[tuple[int, ...], Labels],
        heard: dict[Labels, bool],
        receiver: str,
        group: _Group,
        t: float,
    ) -> Iterator[Notification]:
        says_resolved = self._routing.sends_resolved[receiver]
        firing = frozenset(labels for labels, fires in heard.items() if fires)
        resolved = frozenset(heard) - firing
        before = self._log.get(key)
        repeats = False
        if before is None:
            news = bool(firing)
        elif not firing <= before.firing:
            news = True
        elif not firing:
            news = bool(before.firing)
        elif says_resolved and not resolved <= before.resolved:
            news = True
        else:
            news = repeats = t - before.t > group.route.repeat_s
        if not news:
            return
        self._log[key] = _Logged(t, firing, resolved)
        if firing or says_resolved:
            begins = bool(firing) and (before is None or not before.firing)
            ended = tuple(sorted(resolved)) if says_resolved else ()
            yield Notification(t, receiver, group.labels, tuple(sorted(firing)), ended, begins, repeats)


def notifications(
    routing: Routing, arriving: Iterable[Arrival], until_t: float, swept_t: float = 0.0
) -> list[Notification]:
    """Return what is sent by `until_t`, in the order of time; and, of what had arrived by then, each group's next message."""
    alertmanager = Dispatcher(routing, swept_t)
    sent: list[Notification] = []

    def send_before(t: float) -> None:
        while (due_t := alertmanager.due_t()) < t:
            sent.extend(alertmanager.send(due_t))

    for t, batch in groupby(sorted(arriving), lambda arrival: arrival.t):
        send_before(t)
        alertmanager.take(batch, t)
        sent.extend(alertmanager.send(t))
    longest_s = max(one.interval_s + one.wait_s for one in _routes(routing.root))
    send_before(until_t + longest_s)
    return [one for one in sent if one.t <= until_t or not one.repeats]


def _routes(route: Route) -> Iterator[Route]:
    yield route
    for child in route.children:
        yield from _routes(child)
