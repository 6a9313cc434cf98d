"""Run a backtest: scrape the recording, fill a Prometheus, evaluate every rule."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from omniwatch.desk.backtest import templates
from omniwatch.desk.backtest.errors import BacktestError
from omniwatch.desk.backtest.notifications import Notification, arrivals, notifications
from omniwatch.desk.backtest.recording_source import Moments
from omniwatch.desk.backtest.routes import Routing
from omniwatch.desk.backtest.rules import Rule, RuleSet, Standing, speech_names
from omniwatch.desk.backtest.scrapes import Page, Scrapes
from omniwatch.desk.backtest.states import Episode, Labels, Series, episodes
from omniwatch.desk.backtest.tsdb import Tsdb, evaluations
from omniwatch.replay.recording import Recording
from omniwatch.replay.text import plural
from omniwatch.settings import Settings

Progress = Callable[[str, float], None]
"""Called with what is being done and how much of it is done, from 0 to 1."""
CURVES = ("omni_codec_drift_ms", "omni_token_rtt_ms")


class Side(NamedTuple):
    """A rule set, the settings that the sidecar and its scrapes have with it, the labels of each scrape, its own first, and how
    alerts reach people.
    """

    name: str
    settings: Settings
    rules: Sequence[Rule]
    targets: Sequence[dict[str, str]]
    routing: Routing


class Alert(NamedTuple):
    """One alert of a rule: its labels, the rule's included, and when it was active."""

    labels: Labels
    episodes: list[Episode]


class Verdict(NamedTuple):
    """What came of a rule: `names` are what the recording lacks or takes for granted, `error` is Prometheus' refusal."""

    rule: Rule
    standing: Standing
    names: list[str]
    alerts: list[Alert]
    error: str = ""

    @property
    def fired(self) -> bool:
        """Whether any of its alerts fired."""
        return any(episode.fired for alert in self.alerts for episode in alert.episodes)


class Findings(NamedTuple):
    """A whole backtest; times are seconds since the epoch, `curves` the contract's gauges where they were asked for."""

    side: Side
    first_t: float
    last_t: float
    events: int
    refused: dict[str, int]
    lost: int
    scrapes: int
    verdicts: list[Verdict]
    curves: dict[str, list[Series]]
    sent: list[Notification]


def backtest(file: str, side: Side, directory: Path, progress: Progress, *, curves: bool = False) -> Findings:
    """Run a recording (plain or .gz) against a rule set, in a directory of its own.

    Raises BacktestError, SourceError, OSError.
    """
    recording = Recording(file)
    try:
        moments = Moments(recording, side.settings.sources[0])
        scrapes = Scrapes(moments, side.settings, side.targets)
        every = side.settings.alerts
        tsdb = Tsdb(directory, every.scrape_interval_s, every.evaluation_interval_s)
        count = 0

        def counted() -> Iterator[tuple[float, str]]:
            nonlocal count
            for scrape in scrapes:
                count += 1
                if recording.size:
                    progress("scraping", recording.position / recording.size)
                yield scrape

        tsdb.fill(counted())
    finally:
        recording.close()
    events, refused = sum(scrapes.counts.events.values()), scrapes.counts.invalid
    if not events:
        bad = sum(refused.values())
        raise BacktestError(f"{file}: no event in it" + (f", {plural(bad, 'line')} refused" if bad else ""))
    held = scrapes.names | speech_names()
    verdicts = judge(side, held, tsdb, (scrapes.start_t, scrapes.end_t), every.scrape_interval_s, progress)
    drawn: dict[str, list[Series]] = {}
    if curves:
        times = evaluations(scrapes.start_t, scrapes.end_t, every.scrape_interval_s)
        with tsdb:
            drawn = {name: tsdb.answers(name, times) for name in CURVES}
    progress("asking", 1.0)
    first_t = moments.first_t or 0.0
    sent = sent_messages(side.routing, verdicts, scrapes.end_t)
    return Findings(
        side, first_t, moments.last_t, events, refused, scrapes.lost, count, verdicts, drawn, sent
    )


def sent_messages(routing: Routing, verdicts: Iterable[Verdict], end_t: float) -> list[Notification]:
    """Return what Alertmanager sends of all that fired by `end_t`."""
    arriving = (
        arrival
        for verdict in verdicts
        for alert in verdict.alerts
        for arrival in arrivals(
            routing.labelled(verdict.rule.name, alert.labels), alert.episodes, verdict.rule.interval_s, end_t
        )
    )
    return notifications(routing, arriving, end_t)


def judge(
    side: Side,
    held: Collection[str],
    tsdb: Tsdb,
    span: tuple[float, float],
    scrape_s: float,
    progress: Progress = lambda what, share: None,
) -> list[Verdict]:
    """Return what each alert rule of a side would have done from the first to the last scrape of a filled Prometheus.

    `held` are the names of series that it holds, `scrape_s` is how far apart the scrapes are.
    """
    rule_set = RuleSet(side.rules, held, side.targets)
    _record(rule_set, tsdb, span, scrape_s)
    verdicts = []
    with tsdb:
        for number, rule in enumerate(rule_set.alerts):
            progress("asking", number / len(rule_set.alerts))
            verdicts.append(_verdict(rule, rule_set, tsdb, span))
    return verdicts


def _verdict(rule: Rule, rule_set: RuleSet, tsdb: Tsdb, span: tuple[float, float]) -> Verdict:
    standing, names = rule_set.standing(rule)
    if standing is not Standing.JUDGED:
        return Verdict(rule, standing, names, [])
    times = evaluations(*span, rule.interval_s)
    if not times:
        return Verdict(rule, standing, names, [])
    try:
        found = templates.alerts(rule.labels, tsdb.answers(rule_set.judged_part(rule).expression, times))
    except BacktestError as error:
        return Verdict(rule, standing, names, [], str(error))
    alerts = [Alert(labels, episodes(values, times, rule.hold)) for labels, values in found]
    return Verdict(rule, standing, names, alerts)


def _record(rule_set: RuleSet, tsdb: Tsdb, span: tuple[float, float], scrape_s: float) -> None:
    """Put in what recording rules would have recorded, those first that others rest on."""
    judged = [rule for rule in rule_set.alerts if rule_set.standing(rule)[0] is Standing.JUDGED]
    waiting = [one for rule in judged for one in rule_set.needed(rule)]
    waiting = [one for number, one in enumerate(waiting) if one not in waiting[:number]]
    done: list[Rule] = []
    while waiting:
        ready = [rule for rule in waiting if all(below in done for below in rule_set.needed(rule))]
        with tsdb:
            lines = [
                line
                for rule in ready
                for line in recorded(
                    rule,
                    tsdb.answers(rule.expression, evaluations(*span, rule.interval_s)),
                    scrape_s,
                )
            ]
        tsdb.fill(sorted(lines, key=lambda line: line[0]))
        done += ready
        waiting = [rule for rule in waiting if rule not in ready]


def recorded(rule: Rule, answers: Iterable[Series], scrape_s: float) -> Iterator[tuple[float, str]]:
    """Yield what a recording rule writes: each value again at every scrape until the next evaluation.

    A Prometheus that runs shows the value until then; one that sees no further back than a scrape would not.
    """
    page = Page({})
    for answer in answers:
        labels = {name: text for name, text in answer.labels.items() if name != "__name__"} | rule.labels
        for t, value in answer.points:
            for at in _repeats(t, rule.interval_s, scrape_s):
                yield at, page.line(rule.name, labels, value, at)


def _repeats(t: float, interval_s: float, scrape_s: float) -> list[float]:
    """Return the times from which, seen for just under a scrape, a value lasts until just before the next evaluation."""
    last = t + interval_s - scrape_s
    times = [t]
    while times[-1] + scrape_s < last:
        times.append(round(times[-1] + scrape_s, 3))
    if last > times[-1]:
        times.append(round(last, 3))
    return times
