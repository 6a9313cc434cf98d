"""The web pages as a WSGI application: metrics, live streams, health. The sockets are in server.py."""

from __future__ import annotations

import gzip
import html
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import parse_qs

import msgspec
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from omniwatch import __version__
from omniwatch.system import places
from omniwatch.system.errors import UserError
from omniwatch.web import runbook_pages, static_files
from omniwatch.web.origin import PageAnswer, guarded
from omniwatch.web.response import Response

log = logging.getLogger(__name__)

Start = Callable[..., Any]
WsgiApp = Callable[[dict[str, Any], Start], Iterable[bytes]]
Verdict = Callable[[], tuple[bool, str]]

PATH = re.compile(r"/[A-Za-z0-9/._~!$&'()*+,;=:@-]*")
"""What a path may hold without percent signs (RFC 3986)."""
JSON = "application/json"
MOST_DIGITS = 16
"""Numbers of turns are shorter."""
GZIP_LEVEL = 1
"""Expositions shrink tenfold at the first level already, at a fraction of the time."""


@dataclass(frozen=True)
class Pages:
    """What the pages show. All callables are called from several threads.

    `streams` gives the live streams as JSON values: `stream` (the slot, None when it has none), `id`, `peer`, `state`, `drift_ms`,
    `rtt_ms`, `rtt_vantage` and whatever else there is. `turns` gives the judged turns as JSON, `turn` one of them by its number, None
    where it is not kept. `live` gives the live page's feed since a cursor, compressed by gzip where asked. `ready`, `healthy` and
    `reload` give whether it is so (done) and a line that says why. `hosts` are the names by which browsers may ask for what people
    look at. `digest` is that of the settings in use. `max_requests` bounds the scrapes at work at once; 0: no bound.
    `runbooks` is their folder.
    """

    registry: Collector
    streams: Callable[[], list[dict[str, Any]]]
    turns: Callable[[], bytes]
    turn: Callable[[int], bytes | None]
    live: Callable[[str, bool], bytes]
    ready: Verdict
    healthy: Verdict
    reload: Verdict
    telemetry_path: str = "/metrics"
    max_requests: int = 40
    hosts: Callable[[], Iterable[str]] = tuple
    digest: Callable[[], str] = str
    runbooks: Path | None = None


def respond(environ: dict[str, Any], start_response: Start, response: Response) -> list[bytes]:
    """Write an answer as WSGI has it; to HEAD, without its body. One without a kind has no body to speak of."""
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **dict(response.headers)}
    if response.kind:
        headers |= {"Content-Type": response.kind, "Content-Length": str(len(response.body))}
    start_response(response.status, [*headers.items()])
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [response.body]


@dataclass(frozen=True)
class Route:
    """A page: the methods it takes and what answers, given the request's environ."""

    methods: tuple[str, ...]
    answer: Callable[[dict[str, Any]], Response]


READ = ("GET", "HEAD")


def make_app(pages: Pages) -> WsgiApp:
    """Return the application. Raises UserError for a telemetry path that is none, or is another page's."""
    metrics = _Metrics(pages.registry, pages.max_requests)
    routes = {
        "/": Route(READ, guarded(lambda environ: _landing(pages), pages.hosts)),
        "/streams.json": Route(READ, guarded(lambda environ: _streams(pages), pages.hosts)),
        "/turns.json": Route(READ, guarded(lambda environ: _turns(pages, environ), pages.hosts)),
        "/live.json": Route(READ, guarded(lambda environ: _live(pages, environ), pages.hosts)),
        "/-/healthy": Route(READ, lambda environ: _verdict(pages.healthy, "503 Service Unavailable")),
        "/-/ready": Route(READ, lambda environ: _verdict(pages.ready, "503 Service Unavailable")),
        places.CONFIG_DIGEST: Route(READ, lambda environ: Response("200 OK", f"{pages.digest()}\n".encode())),
        "/-/reload": Route(
            ("POST",),
            guarded(lambda environ: _verdict(pages.reload, "500 Internal Server Error"), pages.hosts),
        ),
    }
    if pages.runbooks is not None:
        folder = pages.runbooks
        routes[runbook_pages.PLACE] = Route(
            READ, guarded(lambda environ: runbook_pages.index(folder), pages.hosts)
        )
        for name in runbook_pages.names(folder):
            routes[runbook_pages.PLACE + name] = Route(READ, guarded(_runbook(folder, name), pages.hosts))
    for path, file in static_files.load().items():
        routes[path] = Route(READ, guarded(_static(file), pages.hosts))
    path = pages.telemetry_path
    if path in routes or not PATH.fullmatch(path):
        raise UserError(f'--web.telemetry-path: expected a path of its own such as /metrics, got "{path}"')
    routes[path] = Route(READ, metrics.answer)
    return routed(routes)


def routed(routes: dict[str, Route]) -> WsgiApp:
    """Return the application that has these pages, by their paths."""

    def app(environ: dict[str, Any], start_response: Start) -> Iterable[bytes]:
        return respond(environ, start_response, _answer(routes, environ))

    return app


def _answer(routes: dict[str, Route], environ: dict[str, Any]) -> Response:
    route = routes.get(environ.get("PATH_INFO", ""))
    if route is None:
        return Response("404 Not Found", b"not found; / lists the pages\n")
    if environ["REQUEST_METHOD"] not in route.methods:
        allow = ", ".join(route.methods)
        return Response("405 Method Not Allowed", f"use {allow}\n".encode(), headers=[("Allow", allow)])
    try:
        return route.answer(environ)
    except Exception:
        log.exception("a page failed", extra={"fields": {"path": environ["PATH_INFO"]}})
        return Response("500 Internal Server Error", b"this page failed; the log says why\n")


class _Metrics:
    def __init__(self, registry: Collector, max_requests: int) -> None:
        self._registry = registry
        self._max_requests = max_requests
        self._places = threading.BoundedSemaphore(max_requests) if max_requests > 0 else None

    def answer(self, environ: dict[str, Any]) -> Response:
        if self._places is None:
            return self._expose(environ)
        if not self._places.acquire(blocking=False):
            text = f"{self._max_requests} scrapes are at work already; try again later\n"
            return Response("503 Service Unavailable", text.encode(), headers=[("Retry-After", "1")])
        try:
            return self._expose(environ)
        finally:
            self._places.release()

    def _expose(self, environ: dict[str, Any]) -> Response:
        try:
            encode, kind = choose_encoder(environ.get("HTTP_ACCEPT", ""))
        except TypeError:
            # The client library's way to say that the header asks for a version that is not a number.
            encode, kind = choose_encoder("")
        names = parse_qs(environ.get("QUERY_STRING", "")).get("name[]")
        body = encode(_Named(self._registry, frozenset(names)) if names else self._registry)
        headers = [("Vary", "Accept, Accept-Encoding")]
        if _takes_gzip(environ.get("HTTP_ACCEPT_ENCODING", "")):
            body = gzip.compress(body, GZIP_LEVEL, mtime=0)
            headers.append(("Content-Encoding", "gzip"))
        return Response("200 OK", body, kind, headers)


class _Named(Collector):
    """The families of a registry that go by one of these names, or have a sample that does."""

    def __init__(self, registry: Collector, names: frozenset[str]) -> None:
        self._registry = registry
        self._names = names

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            if family.name in self._names or any(sample.name in self._names for sample in family.samples):
                yield family


def _takes_gzip(accept_encoding: str) -> bool:
    for offer in accept_encoding.lower().split(","):
        coding, *parameters = (part.strip() for part in offer.split(";"))
        if coding == "gzip":
            return not any(
                parameter.replace(" ", "") in ("q=0", "q=0.0", "q=0.00", "q=0.000")
                for parameter in parameters
            )
    return False


def _verdict(verdict: Verdict, otherwise: str) -> Response:
    well, why = verdict()
    return Response("200 OK" if well else otherwise, " ".join(why.split()).encode() + b"\n")


def _streams(pages: Pages) -> Response:
    return Response("200 OK", msgspec.json.encode({"streams": pages.streams()}) + b"\n", JSON)


def _runbook(folder: Path, name: str) -> PageAnswer:
    return lambda environ: runbook_pages.page(folder, name)


def _static(file: static_files.StaticFile) -> PageAnswer:
    return lambda environ: file.answer(environ, _takes_gzip(environ.get("HTTP_ACCEPT_ENCODING", "")))


def _turns(pages: Pages, environ: dict[str, Any]) -> Response:
    number = _asked(environ, "number")
    if not number:
        return Response("200 OK", pages.turns(), JSON)
    turn = pages.turn(int(number)) if number.isdecimal() and len(number) < MOST_DIGITS else None
    if turn is None:
        return Response("404 Not Found", b"no judged turn of this number is kept\n")
    return Response("200 OK", turn, JSON)


def _live(pages: Pages, environ: dict[str, Any]) -> Response:
    packed = _takes_gzip(environ.get("HTTP_ACCEPT_ENCODING", ""))
    headers = [("Vary", "Accept-Encoding"), *([("Content-Encoding", "gzip")] if packed else [])]
    return Response("200 OK", pages.live(_asked(environ, "since"), packed), JSON, headers)


def _asked(environ: dict[str, Any], name: str) -> str:
    """Return the last value that a query gives for a name; "" where it gives none."""
    query: str = environ.get("QUERY_STRING", "")
    return parse_qs(query).get(name, [""])[-1]


def _landing(pages: Pages) -> Response:
    ready, why = pages.ready()
    streams = pages.streams()
    links = [pages.telemetry_path, "/streams.json", "/turns.json", "/-/healthy", "/-/ready"]
    links += [runbook_pages.PLACE] if pages.runbooks else []
    text = Template(resources.files(__name__).joinpath("landing.html").read_text(encoding="utf-8"))
    page = text.substitute(
        version=html.escape(__version__),
        status=html.escape("Ready." if ready else f"Not ready: {why}"),
        count=len(streams),
        rows="\n".join(map(_row, streams)) or '<tr><td colspan="7">Nobody is listening.</td></tr>',
        links="\n".join(f'<li><a href="{html.escape(link)}">{html.escape(link)}</a></li>' for link in links),
    )
    return Response("200 OK", page.encode(), "text/html; charset=utf-8", [static_files.POLICY])


def _row(stream: dict[str, Any]) -> str:
    rtt = _number(stream.get("rtt_ms"), ".0f")
    if rtt and stream.get("rtt_vantage") == "server":
        rtt += " (server)"
    cells = [
        ("", stream.get("stream")),
        ("id", stream.get("id")),
        ("", stream.get("peer")),
        ("", "away" if stream.get("away") else stream.get("state")),
        ("", stream.get("ear")),
        ("number", _number(stream.get("drift_ms"), "+.0f")),
        ("number", rtt),
    ]
    return "<tr>" + "".join(_cell(name, value) for name, value in cells) + "</tr>"


def _number(value: float | None, form: str) -> str | None:
    return None if value is None else f"{value:{form}} ms"


def _cell(name: str, value: object) -> str:
    text = "\u2013" if value is None else html.escape(str(value))
    return f'<td class="{name}">{text}</td>' if name else f"<td>{text}</td>"
