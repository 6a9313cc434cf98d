"""Ask everything that takes part in paging, side by side: each answer comes within TIMEOUT_S, or is said not to have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec

from omniwatch.bundle import alertmanager, bridge
from omniwatch.bundle.alertmanager import Alert, Alertmanager
from omniwatch.bundle.running import Group
from omniwatch.settings import Settings
from omniwatch.system import http, places
from omniwatch.system.errors import UserError

TIMEOUT_S = 2.0
MAX_BYTES = 16 * 2**20
NEVER = datetime(1, 1, 1, tzinfo=timezone.utc)
T = TypeVar("T")


class Unanswered(NamedTuple):
    """A question without an answer, and why in a line; `guarded` where one came, but only for those who have a password, or TLS."""

    why: str
    guarded: bool = False


class Page(NamedTuple):
    """What the sidecar answers: the HTTP status, and the body."""

    is_ok: bool
    text: str


class Target(msgspec.Struct, frozen=True, rename="camel"):
    """What Prometheus scrapes. `health` is up, down or unknown."""

    labels: dict[str, str]
    health: str
    last_error: str = ""


class _Targets(msgspec.Struct, frozen=True, rename="camel"):
    active_targets: list[Target]


class _Groups(msgspec.Struct, frozen=True):
    groups: list[Group]


class _Receiver(msgspec.Struct, frozen=True):
    url: str


class _Receivers(msgspec.Struct, frozen=True, rename="camel"):
    active_alertmanagers: list[_Receiver] = []


class _Yaml(msgspec.Struct, frozen=True):
    yaml: str


class Runtime(msgspec.Struct, frozen=True, rename="camel"):
    """Since when Prometheus runs, and whether it took over what it was told to read last."""

    start_time: datetime
    reload_config_success: bool = True
    last_config_time: datetime = NEVER


class Answers(NamedTuple):
    """What each has answered."""

    ready: Page | Unanswered
    digest: Page | Unanswered
    metrics: Page | Unanswered
    streams: Page | Unanswered
    config: dict[str, Any] | Unanswered
    groups: list[Group] | Unanswered
    targets: list[Target] | Unanswered
    receivers: list[str] | Unanswered
    runtime: Runtime | Unanswered
    bridge: bridge.Report | Unanswered | None
    alerts: list[tuple[Alertmanager, list[Alert] | Unanswered]]
    routing: dict[str, Any] | Unanswered | None


def ask(settings: Settings, timeout_s: float = TIMEOUT_S) -> Answers:
    """Ask them all; what does not answer takes no more time than `timeout_s`, however many there are."""
    prometheus = f"http://{settings.fleet.prometheus}"
    alertmanagers = alertmanager.of(settings, timeout_s)
    of_prometheus = partial(_prometheus, prometheus, timeout_s)
    is_own = not settings.fleet.alertmanager_urls
    questions: dict[str, Callable[[], Any]] = {
        "ready": lambda: _page(f"http://{settings.site.exporter}/-/ready", timeout_s),
        "digest": lambda: _page(f"http://{settings.site.exporter}{places.CONFIG_DIGEST}", timeout_s),
        "metrics": lambda: _page(f"http://{settings.site.exporter}/metrics", timeout_s),
        "streams": lambda: _page(f"http://{settings.site.exporter}/streams.json", timeout_s),
        "config": lambda: alertmanager.load_running(of_prometheus("status/config", _Yaml).yaml, prometheus),
        "groups": lambda: of_prometheus("rules", _Groups).groups,
        "targets": lambda: of_prometheus("targets?state=active", _Targets).active_targets,
        "receivers": lambda: [
            one.url for one in of_prometheus("alertmanagers", _Receivers).active_alertmanagers
        ],
        "runtime": lambda: of_prometheus("status/runtimeinfo", Runtime),
    }
    if is_own:
        questions["routing"] = alertmanagers[0].running
    if settings.notify.robots and is_own:
        questions["bridge"] = partial(bridge.report, settings.notify.url, timeout_s)
    for number, one in enumerate(alertmanagers):
        questions[f"alerts {number}"] = partial(one.alerts, settings.site.device)
    found = side_by_side(questions)
    alerts = [(one, found.pop(f"alerts {number}")) for number, one in enumerate(alertmanagers)]
    return Answers(**{"bridge": None, "routing": None} | found, alerts=alerts)


def side_by_side(questions: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """Return the answers; a question that raises what a server or a file can be to blame for has an Unanswered."""
    with ThreadPoolExecutor(max(1, len(questions))) as pool:
        return dict(zip(questions, pool.map(_answer, questions.values()), strict=True))


def _answer(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except (OSError, UserError) as error:
        return Unanswered(str(error), isinstance(error, alertmanager.GuardedError))


def _page(url: str, timeout_s: float) -> Page:
    try:
        with http.ask(url, timeout_s=timeout_s) as answer:
            return Page(answer.ok, answer.read(MAX_BYTES).decode("utf-8", "replace"))
    except http.HttpError as error:
        raise http.HttpError(f"{url}: {error}") from error


def _prometheus(url: str, timeout_s: float, name: str, of: type[T]) -> T:
    try:
        with http.ask(f"{url}/api/v1/{name}", timeout_s=timeout_s) as answer:
            alertmanager.guard(answer, url)
            if not answer.ok:
                raise http.HttpError(f"{url}: HTTP {answer.status}")
            body = answer.read(MAX_BYTES)
    except http.HttpError as error:
        raise http.HttpError(str(error) if str(error).startswith(url) else f"{url}: {error}") from error
    try:
        return msgspec.convert(msgspec.json.decode(body)["data"], of)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError, LookupError, TypeError) as error:
        raise http.HttpError(f"{url}: this does not answer as Prometheus does") from error
