from __future__ import annotations

import gzip
import json
import logging
import socket
import threading
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from helpers.paths import CLONE
from helpers.waiting import wait_until
from helpers.web_calls import Page, Streams, call, pages
from omniwatch import __version__
from omniwatch.web import make_app, static_files

LIVE = [
    {
        "stream": 0,
        "id": "sess-1",
        "peer": "10.0.0.7:5123",
        "state": "speaking",
        "drift_ms": -71.6,
        "rtt_ms": 412.2,
        "rtt_vantage": "client",
        "ear": "kernel",
        "away": False,
    },
    {
        "stream": None,
        "id": "<script>alert('x')</script>&",
        "peer": None,
        "state": "speaking",
        "ear": "kernel",
        "away": True,
    },
    {"stream": 1, "id": "s2", "drift_ms": 12.0, "rtt_ms": 90.0, "rtt_vantage": "server", "state": "waiting"},
]


def test_metrics_in_the_text_format() -> None:
    reply = call(make_app(pages()), "/metrics")
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    drift, streams = parse_text(reply.text)
    assert [(sample.labels, sample.value) for sample in drift.samples] == [
        ({"stream": "0"}, 0.0),
        ({"stream": "1"}, -7.5),
    ]
    assert streams.samples[0].value == 2


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", "text/plain; version=0.0.4"),
        ("*/*", "text/plain; version=0.0.4"),
        (
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3",
            "application/openmetrics-text",
        ),
        ("application/openmetrics-text", "application/openmetrics-text"),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text/plain; version=0.0.4"),
        (";;,,;=;version=", "text/plain; version=0.0.4"),
    ],
)
def test_the_format_is_what_the_client_accepts(accept: str, kind: str) -> None:
    reply = call(make_app(pages()), "/metrics", accept=accept)
    assert reply.status == 200
    assert reply.headers["Content-Type"].startswith(kind)
    parse = parse_openmetrics if "openmetrics" in kind else parse_text
    assert [family.name for family in parse(reply.text)] == ["omni_codec_drift_ms", "omni_streams"]


@pytest.mark.parametrize(
    "accept", ["text/plain;version=abc", "application/openmetrics-text;version=x.y", "\xff"]
)
def test_a_version_that_is_none_gets_a_format_all_the_same(accept: str) -> None:
    reply = call(make_app(pages()), "/metrics", accept=accept)
    assert reply.status == 200
    assert "omni_streams 2.0" in reply.text


@pytest.mark.parametrize(
    ("offer", "packed"),
    [
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("br;q=1.0, gzip ; q=0.8", True),
        ("gzip;q=0", False),
        ("gzip;q=0.0, identity", False),
        ("identity", False),
        ("", False),
        ("x-gzip-like", False),
    ],
)
def test_gzip_only_when_it_is_accepted(offer: str, packed: bool) -> None:
    app = make_app(pages())
    reply = call(app, "/metrics", accept_encoding=offer)
    assert (reply.headers.get("Content-Encoding") == "gzip") is packed
    plain = gzip.decompress(reply.body) if packed else reply.body
    assert plain == call(app, "/metrics").body
    assert int(reply.headers["Content-Length"]) == len(reply.body)


def test_name_filter_picks_families_and_samples() -> None:
    app = make_app(pages())
    assert call(app, "/metrics?name[]=omni_streams").text.count("# TYPE") == 1
    both = call(app, "/metrics?name[]=omni_streams&name%5B%5D=omni_codec_drift_ms")
    assert both.body == call(app, "/metrics").body
    assert call(app, "/metrics?name[]=nothing").body == b""
    assert call(app, "/metrics?debug=1").body == call(app, "/metrics").body


def test_each_scrape_collects_anew() -> None:
    streams = Streams(1)
    app = make_app(pages(streams))
    assert "omni_streams 1.0" in call(app, "/metrics").text
    streams.count = 3
    assert "omni_streams 3.0" in call(app, "/metrics").text


@pytest.mark.parametrize(
    "path", ["/", "/metrics", "/streams.json", "/turns.json", "/live.json", "/-/healthy", "/-/ready"]
)
def test_head_is_get_without_the_body(path: str) -> None:
    app = make_app(pages())
    head, get = call(app, path, "HEAD"), call(app, path)
    assert head.body == b""
    assert get.body
    assert (head.status, head.headers) == (get.status, get.headers)


@pytest.mark.parametrize(
    "path", ["/metric", "/metrics/", "//metrics", "/favicon.ico", "/-/", "/-/quit", "", "/../etc"]
)
def test_unknown_paths_are_404(path: str) -> None:
    app = make_app(pages())
    assert call(app, path).status == 404
    assert call(app, path, "POST").status == 404


@pytest.mark.parametrize(
    ("path", "method", "allow"),
    [
        ("/metrics", "POST", "GET, HEAD"),
        ("/", "DELETE", "GET, HEAD"),
        ("/streams.json", "OPTIONS", "GET, HEAD"),
        ("/-/reload", "GET", "POST"),
        ("/-/reload", "HEAD", "POST"),
    ],
)
def test_wrong_methods_are_405_and_told_the_right_ones(path: str, method: str, allow: str) -> None:
    reply = call(make_app(pages()), path, method)
    assert reply.status == 405
    assert reply.headers["Allow"] == allow


@pytest.mark.parametrize(("path", "name"), [("/-/healthy", "healthy"), ("/-/ready", "ready")])
def test_health_tells_the_truth_in_one_line(path: str, name: str) -> None:
    verdict = [(True, "fine")]
    app = make_app(pages(**{name: lambda: verdict[0]}))
    assert (call(app, path).status, call(app, path).body) == (200, b"fine\n")
    verdict[0] = (False, "tail:/run/x: No such\nfile")
    assert (call(app, path).status, call(app, path).body) == (503, b"tail:/run/x: No such file\n")


def test_reload_reports_how_it_went() -> None:
    outcome = [(True, "reloaded")]
    app = make_app(pages(reload=lambda: outcome[0]))
    assert call(app, "/-/reload", "POST")[::2] == (200, b"reloaded\n")
    outcome[0] = (False, "omniwatch.yaml: streams.x: no such setting")
    assert call(app, "/-/reload", "POST")[::2] == (500, b"omniwatch.yaml: streams.x: no such setting\n")


def test_reading_never_reloads() -> None:
    calls: list[str] = []
    app = make_app(pages(reload=lambda: (True, calls.append("reload") or "reloaded")))
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        call(app, "/-/reload", method)
    assert calls == []


def test_streams_as_json() -> None:
    reply = call(make_app(pages(streams=lambda: LIVE)), "/streams.json")
    assert reply.headers["Content-Type"] == "application/json"
    assert json.loads(reply.body) == {"streams": LIVE}


def test_the_landing_page_shows_the_live_streams() -> None:
    reply = call(make_app(pages(streams=lambda: LIVE)), "/")
    assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
    page = Page(reply.text)
    assert page.rows == [
        [],
        ["0", "sess-1", "10.0.0.7:5123", "speaking", "kernel", "-72 ms", "412 ms"],
        ["\u2013", "<script>alert('x')</script>&", "\u2013", "away", "kernel", "\u2013", "\u2013"],
        ["1", "s2", "\u2013", "waiting", "\u2013", "+12 ms", "90 ms (server)"],
    ]
    # The page's own two, and none of a name.
    assert page.tags.count("script") == 2
    assert __version__ in reply.text
    assert page.meta == {"refresh": "5"}


def test_the_landing_page_links_every_page_there_is() -> None:
    app = make_app(pages(telemetry_path="/m&m"))
    page = Page(call(app, "/").text)
    assert page.links == ["/m&m", "/streams.json", "/turns.json", "/-/healthy", "/-/ready"]
    assert [call(app, link).status for link in page.links] == [200] * 5


def test_the_landing_page_says_when_it_is_not_ready() -> None:
    reply = call(make_app(pages(ready=lambda: (False, "tail:<x>: gone"))), "/")
    assert "Not ready: tail:&lt;x&gt;: gone" in reply.text
    assert "Nobody is listening." in reply.text


@pytest.mark.parametrize(
    "path", ["metrics", "", "/", "/-/ready", "/streams.json", "/live.json", "/a\nb", "/m\u00e9", "/m?x"]
)
def test_a_telemetry_path_that_cannot_be_is_refused(path: str) -> None:
    with pytest.raises(
        ValueError, match=r"^--web\.telemetry-path: expected a path of its own such as /metrics, got"
    ):
        make_app(pages(telemetry_path=path))


def test_another_telemetry_path() -> None:
    app = make_app(pages(telemetry_path="/telemetry"))
    assert call(app, "/telemetry").status == 200
    assert call(app, "/metrics").status == 404


class Held:
    """A collector that is at work until it is let go."""

    def __init__(self) -> None:
        self.at_work = 0
        self.go = threading.Event()

    def collect(self) -> Any:
        self.at_work += 1
        assert self.go.wait(60)
        return Streams().collect()


def test_scrapes_past_the_bound_are_turned_away_and_nothing_else_is() -> None:
    held = Held()
    app = make_app(pages(held, max_requests=2))
    replies: list[int] = []
    scrapes = [
        threading.Thread(target=lambda: replies.append(call(app, "/metrics").status)) for _ in range(2)
    ]
    for scrape in scrapes:
        scrape.start()
    try:
        wait_until(lambda: held.at_work == 2)
        refused = call(app, "/metrics")
        assert refused.status == 503
        assert refused.headers["Retry-After"] == "1"
        assert refused.body == b"2 scrapes are at work already; try again later\n"
        assert call(app, "/-/healthy").status == 200
    finally:
        held.go.set()
    for scrape in scrapes:
        scrape.join()
    assert replies == [200, 200]
    assert call(app, "/metrics").status == 200


def test_a_page_that_fails_is_a_500_and_frees_its_place(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def collect(self) -> Any:
            raise RuntimeError("no table")

    app = make_app(pages(Broken(), max_requests=1))
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            reply = call(app, "/metrics")
            assert (reply.status, reply.body) == (500, b"this page failed; the log says why\n")
    assert "no table" in caplog.text


def test_without_a_bound_any_number_may_scrape() -> None:
    assert call(make_app(pages(max_requests=0)), "/metrics").status == 200


PEOPLES = [
    ("/", "GET"),
    ("/streams.json", "GET"),
    ("/turns.json", "GET"),
    ("/turns.json?number=17", "GET"),
    ("/live.json", "GET"),
    *((path, "GET") for path in static_files.load()),
    ("/runbooks/", "GET"),
    ("/runbooks/CodecDrift", "GET"),
    ("/-/reload", "POST"),
]


@pytest.mark.parametrize(("path", "method"), PEOPLES)
@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:9842",
        "[::1]:9842",
        "192.0.2.7",
        "localhost:9000",
        "orin.local",
        "ORIN:9842",
        socket.gethostname(),
    ],
)
def test_pages_answer_by_address_and_by_their_own_names(path: str, method: str, host: str) -> None:
    app = make_app(pages(hosts=lambda: ("orin", "orin.local"), runbooks=CLONE / "runbooks"))
    assert call(app, path, method, host=host).status == 200
    assert call(app, path, method, host=host, origin=f"http://{host}").status == 200


@pytest.mark.parametrize(("path", "method"), PEOPLES)
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9842", "127.0.0.1.evil.example", "[x", "", "a b"]
)
def test_a_name_that_others_point_here_is_refused(path: str, method: str, host: str) -> None:
    app = make_app(pages(hosts=lambda: ("orin",), runbooks=CLONE / "runbooks"))
    assert call(app, path, method, host=host).status == 403
    assert call(app, path, method, host="orin", origin=f"http://{host}").status == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://192.0.2.1", "https://127.0.0.1:9842.evil"]
)
def test_a_page_of_another_site_reloads_nothing(origin: str) -> None:
    done: list[int] = []
    app = make_app(pages(reload=lambda: (done.append(1) or True, "reloaded")))
    assert call(app, "/-/reload", "POST", host="127.0.0.1:9842", origin=origin).status == 403
    assert done == []


@pytest.mark.parametrize("path", ["/metrics", "/-/healthy", "/-/ready"])
def test_scrapes_and_health_checks_pass_by_any_name(path: str) -> None:
    assert call(make_app(pages()), path, host="evil.example", origin="http://evil.example").status == 200


def test_the_digest_of_the_settings_in_use_is_served():
    reply = call(make_app(pages(digest=lambda: "ab12")), "/-/config")
    assert (reply.status, reply.body) == (200, b"ab12\n")


def test_the_live_feed_gets_the_cursor_and_is_compressed_where_that_is_accepted() -> None:
    asked: list[tuple[str, bool]] = []

    def live(since: str, packed: bool) -> bytes:
        asked.append((since, packed))
        return gzip.compress(b"{}") if packed else b"{}"

    app = make_app(pages(live=live))
    plain = call(app, "/live.json?since=1f.7.0&since=1f.8.0")
    packed = call(app, "/live.json", accept_encoding="gzip, br")
    assert asked == [("1f.8.0", False), ("", True)]
    assert (plain.body, gzip.decompress(packed.body)) == (b"{}", b"{}")
    assert plain.headers["Content-Type"] == packed.headers["Content-Type"] == "application/json"
    assert (plain.headers.get("Content-Encoding"), packed.headers["Content-Encoding"]) == (None, "gzip")
    assert plain.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("query", "status"),
    [("number=17", 200), ("number=18", 404), ("number=x", 404), ("number=" + "9" * 5000, 404)],
)
def test_one_turn_by_its_number(query: str, status: int) -> None:
    reply = call(make_app(pages()), f"/turns.json?{query}")
    assert reply.status == status
    assert (reply.body == b'{"turn":{}}\n') is (status == 200)
