"""Judge what takes part in paging by its answers: Prometheus, Alertmanager, the heartbeat between them, the bridge to chat robots.

A chain is judged link by link, and only its first broken link is a fault: what follows from it is not looked at.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import yaml

from omniwatch.bundle import inline_secrets, render, running, wiring
from omniwatch.bundle.finding import Finding, Unseen
from omniwatch.bundle.program_files import InstallError
from omniwatch.bundle.servers import NEVER, Answers, Runtime, Target, Unanswered
from omniwatch.bundle.wiring import ALERTMANAGER, BUNDLE, PROMETHEUS
from omniwatch.bundle.yaml_text import load_yaml
from omniwatch.settings import Settings
from omniwatch.system import rooted
from omniwatch.system.hostport import join_host_port

INTERVALS = 2
"""Intervals within which each group of rules is evaluated."""
BEAT_S = 60.0
"""Prometheus sends an alert that goes on firing once in so many seconds (--rules.alert.resend-delay)."""
CONFIGURATION, ROUTING = "Prometheus' configuration", "Alertmanager's configuration"
FRESH_S = 15.0
"""Seconds after a start or a reload within which Prometheus need not know its targets."""
READ = tuple(
    path
    for path in render.paths()
    if path.name in ("prometheus.yml", "alertmanager.yml", "omniwatch.tmpl") and "fleet" not in path.parts
)
"""What the two servers read of the bundle, beside the rules that prometheus.yml names."""


def written(settings: Settings, root: Path) -> Iterator[Finding]:
    """Compare the bundle that is on the device with what the settings would have now."""
    if not rooted.is_folder(root, BUNDLE):
        return
    rules = [
        path for path in render.paths() if path.parts[0] == "alerts" and path.name.endswith(".rules.yaml")
    ]
    try:
        files = render.render(settings, only=[*READ, *rules])
    except render.RenderError as error:
        yield Finding("bundle", False, f"cannot be rendered: {str(error).splitlines()[0]}")
        return
    asked = load_yaml(files[PROMETHEUS.rendered])["rule_files"]
    names = {PurePosixPath(name).name for name in asked}
    if settings.fleet.alertmanager_urls:
        files = {path: text for path, text in files.items() if "alertmanager" not in path.parts}
    files = {path: text for path, text in files.items() if path.parts[0] != "alerts" or path.name in names}
    try:
        odd = list(render.changed(inline_secrets.filled(files, settings, root), BUNDLE, root))
    except (InstallError, OSError) as error:
        yield Unseen("bundle", False, str(error))
        return
    if odd:
        yield Finding(
            "bundle",
            False,
            f"{odd[0]}{f' and {len(odd) - 1} more' if odd[1:] else ''} in {BUNDLE}: missing, or not as the settings have it; "
            "omniwatch install --with-prometheus",
        )
    else:
        yield Finding("bundle", True, f"{BUNDLE} is as the settings have it")


def judged(
    settings: Settings,
    answers: Answers,
    root: Path,
    *,
    down: Collection[str],
    is_awaited: bool,
    sidecar_is_well: bool,
    bundle_is_well: bool,
    now: datetime,
) -> Iterator[Finding]:
    """Judge Prometheus, what runs there, the way to Alertmanager, and the heartbeat. `down` are units that do not run: they are a
    fault already. So is a bundle that is not well: that it is not what runs is none.
    """
    chain = _Chain(settings, answers, root, down, is_awaited, now)
    prometheus = [
        _excused(one, bundle_is_well=bundle_is_well)
        for one in chain.prometheus(sidecar_is_well=sidecar_is_well)
    ]
    yield from prometheus
    link = [_excused(one, bundle_is_well=bundle_is_well) for one in chain.alertmanager()]
    yield from link
    if is_awaited:
        # The heartbeat shows of a guarded Prometheus that it evaluates, and reaches Alertmanager.
        looked_at = [one for one in prometheus if not isinstance(one, Unseen)]
        broken = [one.what for one in (*looked_at, *link) if one.ok is not True and one.what != "scraping"]
        yield chain.heartbeat(broken)


def _excused(finding: Finding, *, bundle_is_well: bool) -> Finding:
    return (
        finding
        if bundle_is_well or finding.what not in (CONFIGURATION, ROUTING) or finding.ok
        else finding._replace(ok=None)
    )


@dataclass(frozen=True)
class _Chain:
    settings: Settings
    answers: Answers
    root: Path
    down: Collection[str]
    is_awaited: bool
    now: datetime

    def prometheus(self, *, sidecar_is_well: bool) -> Iterator[Finding]:
        """Whether it answers, runs what is written, evaluates it, and scrapes the sidecar."""
        answers = self.answers
        if PROMETHEUS.unit in self.down:
            yield Finding("Prometheus", None, f"not asked: {PROMETHEUS.unit} does not run")
            return
        silent = [
            one
            for one in (answers.runtime, answers.config, answers.groups, answers.targets)
            if isinstance(one, Unanswered)
        ]
        if silent and silent[0].guarded and self.is_awaited:
            yield Unseen(
                "Prometheus", False, f"{silent[0].why}: not asked what it runs; the heartbeat is looked at"
            )
            return
        if silent:
            yield Finding("Prometheus", False if self.is_awaited else None, silent[0].why)
            return
        assert not isinstance(answers.runtime, Unanswered)
        assert not isinstance(answers.config, Unanswered)
        assert not isinstance(answers.groups, Unanswered)
        assert not isinstance(answers.targets, Unanswered)
        url = f"http://{self.settings.fleet.prometheus}"
        if not self.is_awaited and not _of_job(answers.targets, "omniwatch"):
            yield Finding(
                "Prometheus",
                None,
                f"answers at {url}, without Omniwatch: omniwatch install --with-prometheus",
            )
            return
        yield Finding("Prometheus", True, f"answers at {url}")
        is_taken_over = True
        if PROMETHEUS in wiring.wired(self.root):
            finding = self._taken_over(answers.config, answers.groups, answers.runtime)
            is_taken_over = finding.ok is True
            yield finding
        yield self._rules(answers.groups, answers.runtime, is_taken_over=is_taken_over)
        yield self._scraping(answers.targets, is_judged=is_taken_over and sidecar_is_well)

    def _taken_over(
        self, config: Mapping[str, Any], groups: list[running.Group], runtime: Runtime
    ) -> Finding:
        what, reload = CONFIGURATION, f"systemctl reload {PROMETHEUS.unit}"
        path = BUNDLE / PROMETHEUS.rendered
        try:
            here = _read(self.root, path)
            rules = [str(wiring.plain(path.parent / name)) for name in here["rule_files"]]
            contents = {name: _read(self.root, PurePosixPath(name)) for name in rules}
        except FileNotFoundError as error:
            return Finding(what, None, f"not compared: {error.filename} is missing")
        except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError) as error:
            return Finding(what, False, f"{path}: cannot be read: {' '.join(str(error).split())[:200]}")
        if not runtime.reload_config_success:
            return Finding(
                what, False, "Prometheus refused it: journalctl -u prometheus says why; an older one runs"
            )
        if where := running.difference(here, config, str(path.parent)):
            return Finding(what, False, f"{where} of {path} is not what runs: {reload}")
        if odd := sorted(running.rule_differences(contents, groups)):
            more = f" and {len(odd) - 1} more" if odd[1:] else ""
            return Finding(
                what, False, f"{odd[0]}{more}: what is written in {BUNDLE} is not what runs: {reload}"
            )
        return Finding(what, True, f"runs as written in {BUNDLE}")

    def _rules(self, groups: list[running.Group], runtime: Runtime, *, is_taken_over: bool) -> Finding:
        ours = [group for group in groups if group.name.startswith("omni_")]
        if not ours:
            return Finding(
                "rules", False if is_taken_over else None, "Prometheus evaluates none of Omniwatch's"
            )
        fresh = max(runtime.start_time, runtime.last_config_time)
        for group in ours:
            within = timedelta(seconds=INTERVALS * group.interval)
            if self.now - max(group.last_evaluation, fresh) > within:
                since = "never" if group.last_evaluation <= NEVER else f"last at {_at(group.last_evaluation)}"
                return Finding(
                    "rules", False, f"group {group.name} was evaluated {since}, not within {within}"
                )
        failing = [(rule, group) for group in ours for rule in group.rules if rule.health == "err"]
        if failing:
            rule, group = failing[0]
            more = f" and {len(failing) - 1} more" if failing[1:] else ""
            why = " ".join(rule.last_error.split())[:200]
            return Finding("rules", False, f"{rule.name} of {group.name}{more} cannot be evaluated: {why}")
        return Finding("rules", True, f"{sum(len(group.rules) for group in ours)} evaluated in time")

    def _scraping(self, targets: list[Target], *, is_judged: bool) -> Finding:
        found = _of_job(targets, "omniwatch")
        if not found:
            is_fault = is_judged and not self._is_fresh()
            return Finding("scraping", False if is_fault else None, "Prometheus has no job omniwatch")
        if found[0].health == "up":
            return Finding("scraping", True, "Prometheus reaches the sidecar")
        if found[0].health == "unknown":
            return Finding("scraping", None, "Prometheus has not scraped the sidecar yet")
        says = f"Prometheus does not reach the sidecar: {found[0].last_error}"
        return Finding("scraping", False if is_judged else None, says)

    def alertmanager(self) -> Iterator[Finding]:
        """Whether each answers, and runs what is written; and whether Prometheus reaches it."""
        answers = self.answers
        for server, alerts in answers.alerts:
            if ALERTMANAGER.unit in self.down and answers.routing is not None:
                yield Finding("Alertmanager", None, f"not asked: {ALERTMANAGER.unit} does not run")
            elif isinstance(alerts, Unanswered) and alerts.guarded and self.is_awaited:
                yield Unseen("Alertmanager", False, f"{alerts.why}: not asked what it runs and what fires")
                yield from self._reached(server.url)
            elif isinstance(alerts, Unanswered):
                yield Finding("Alertmanager", False if self.is_awaited else None, alerts.why)
            else:
                yield Finding("Alertmanager", True, f"answers at {server.url}")
                if answers.routing is not None and ALERTMANAGER in wiring.wired(self.root):
                    yield self._routing(answers.routing)
                if self.is_awaited:
                    yield from self._reached(server.url)

    def _routing(self, runs: dict[str, Any] | Unanswered) -> Finding:
        what, path = ROUTING, BUNDLE / ALERTMANAGER.rendered
        if isinstance(runs, Unanswered):
            return Finding(what, False, runs.why)
        try:
            here = _read(self.root, path)
        except FileNotFoundError as error:
            return Finding(what, None, f"not compared: {error.filename} is missing")
        except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
            return Finding(what, False, f"{path}: cannot be read: {' '.join(str(error).split())[:200]}")
        if where := running.difference(here, runs, str(path.parent)):
            return Finding(
                what, False, f"{where} of {path} is not what runs: systemctl reload {ALERTMANAGER.unit}"
            )
        return Finding(what, True, f"runs as written in {BUNDLE}")

    def _reached(self, url: str) -> Iterator[Finding]:
        answers = self.answers
        if (
            PROMETHEUS.unit in self.down
            or isinstance(answers.receivers, Unanswered)
            or isinstance(answers.targets, Unanswered)
        ):
            return
        what = "alerts' way"
        if _place(url) not in map(_place, answers.receivers):
            is_fault = not self._is_fresh()
            yield Finding(what, False if is_fault else None, f"Prometheus does not send alerts to {url}")
            return
        down = [one for one in _of_job(answers.targets, "alertmanager") if one.health == "down"]
        if down:
            yield Finding(what, False, f"Prometheus does not reach Alertmanager: {down[0].last_error}")
        else:
            yield Finding(what, True, f"Prometheus sends alerts to {url}")

    def _is_fresh(self) -> bool:
        """Whether Prometheus was started or reloaded just now: it takes some seconds to know its targets."""
        runtime = self.answers.runtime
        if isinstance(runtime, Unanswered):
            return False
        return (self.now - max(runtime.start_time, runtime.last_config_time)).total_seconds() < FRESH_S

    def heartbeat(self, broken: list[str]) -> Finding:
        """Whether the Watchdog has come to Alertmanager within its interval."""
        what = "heartbeat"
        if broken:
            return Finding(what, None, f"not judged: {broken[0]} comes first")
        runtime = self.answers.runtime
        began_t = (
            NEVER if isinstance(runtime, Unanswered) else max(runtime.start_time, runtime.last_config_time)
        )
        within_s = BEAT_S + INTERVALS * self.settings.alerts.evaluation_interval_s
        for server, alerts in self.answers.alerts:
            assert not isinstance(alerts, Unanswered)
            seen = [one.updated_at for one in alerts if one.labels.get("alertname") == "Watchdog"]
            last = max((one for one in seen if one), default=None)
            if last and (self.now - last).total_seconds() <= within_s:
                continue
            if (self.now - began_t).total_seconds() <= within_s:
                return Finding(what, None, "has not begun: Prometheus was started or reloaded just now")
            since = f"since {_at(last)}" if last else "at all"
            return Finding(what, False, f"Alertmanager at {server.url} has not seen the Watchdog {since}")
        return Finding(what, True, f"Alertmanager has seen the Watchdog within {within_s:g} s")


def robots(
    settings: Settings, answers: Answers, *, down: Collection[str], now: datetime
) -> Iterator[Finding]:
    """Say what the bridge could not deliver, since when."""
    report = answers.bridge
    if report is None or "omniwatch-notify.service" in down:
        return
    if isinstance(report, Unanswered):
        yield Finding("bridge", False, report.why)
        return
    if len(report.robots) != len(settings.notify.robots):
        yield Finding(
            "bridge", False, "runs with other robots than the settings': systemctl restart omniwatch-notify"
        )
        return
    failing = [one for one in report.robots if one.failing_s is not None]
    for one in failing:
        lost = one.undelivered
        oldest = max([one.failing_s or 0.0, *(message.age_s for message in lost)])
        titles = ", ".join(message.title for message in lost[:3]) + (
            f" and {len(lost) - 3} more" if lost[3:] else ""
        )
        yield Finding(
            "bridge",
            False,
            f"{one.robot} takes nothing since {_at(now - timedelta(seconds=oldest))} ({one.error}); not delivered: {titles}",
        )
    if not failing:
        yield Finding("bridge", True, f"{len(report.robots)} robots, nothing undelivered")


def _read(root: Path, path: PurePosixPath) -> dict[str, Any]:
    found: dict[str, Any] = load_yaml(rooted.read(root, path))
    return found


def _of_job(targets: list[Target], job: str) -> list[Target]:
    return [one for one in targets if one.labels.get("job") == job]


def _place(url: str) -> tuple[str, str]:
    """Return where alerts go: the server, and its prefix."""
    parts = urlsplit(url)
    path = parts.path.removesuffix("/api/v2/alerts").removesuffix("/api/v1/alerts").rstrip("/")
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme, 0)
    return join_host_port(parts.hostname or "", port), path


def _at(t: datetime) -> str:
    return t.astimezone().strftime("%m-%d %H:%M:%S")
