"""Calls of a WSGI application, checked against the WSGI standard on the way."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any, NamedTuple
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric

from omniwatch.web import Pages, WsgiApp


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


def call(app: WsgiApp, path: str, method: str = "GET", remote: str = "127.0.0.1", **headers: str) -> Reply:
    environ: dict[str, Any] = {"REMOTE_ADDR": remote}
    setup_testing_defaults(environ)
    environ["PATH_INFO"], _, environ["QUERY_STRING"] = path.partition("?")
    environ["REQUEST_METHOD"] = method
    environ |= {f"HTTP_{name.upper()}": value for name, value in headers.items()}
    started: list[Any] = []

    def start_response(status: str, headers: list[tuple[str, str]], *_: Any) -> Any:
        started[:] = [status, headers]
        return lambda data: None

    answer = validator(app)(environ, start_response)
    body = b"".join(answer)
    answer.close()
    names = [name.lower() for name, _ in started[1]]
    assert len(names) == len(set(names)), "a header twice"
    return Reply(int(started[0].split()[0]), dict(started[1]), body)


class Streams:
    """A collector of as many drift samples as are asked for."""

    def __init__(self, count: int = 2) -> None:
        self.count = count

    def collect(self) -> Iterator[Metric]:
        drift = GaugeMetricFamily("omni_codec_drift_ms", "Drift.", labels=["stream"])
        for slot in range(self.count):
            drift.add_metric([str(slot)], -7.5 * slot)
        yield drift
        yield GaugeMetricFamily("omni_streams", "Live streams.", value=self.count)


def pages(collector: Any = None, **changes: Any) -> Pages:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector or Streams())
    values: dict[str, Any] = {
        "registry": registry,
        "streams": list,
        "turns": lambda: b'{"turns":[]}\n',
        "turn": lambda number: b'{"turn":{}}\n' if number == 17 else None,
        "live": lambda since, packed: b'{"since":"%s"}' % since.encode(),
        "ready": lambda: (True, "ready"),
        "healthy": lambda: (True, "healthy"),
        "reload": lambda: (True, "reloaded"),
    }
    return Pages(**(values | changes))


class Page(HTMLParser):
    """What of an HTML page the tests look at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.meta: dict[str, str] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")
        if tag == "a":
            self.links.append(str(values["href"]))
        if tag == "meta" and "http-equiv" in values:
            self.meta[str(values["http-equiv"])] = str(values["content"])

    def handle_data(self, data: str) -> None:
        if self.tags[-1:] == ["td"] and data.strip():
            self.rows[-1][-1] += data
