"""`omniwatch fleet status`: what is made of the centre's answers, and of answers that are none."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs

import pytest
from click.testing import CliRunner

from omniwatch.cli.fleet import command
from omniwatch.fleet import status
from omniwatch.fleet.inventory import Device
from omniwatch.fleet.query import Centre, QueryError, Sample

NOW = 1_800_000_000.0
DEVICES = [Device("a", "h:1", "north", "orin", "1"), Device("b", "h:2", "south"), Device("c", "h:3", "north")]


def identity(device: str, release: str = "1") -> dict[str, str]:
    return {"device": device, "site": "north", "model": "orin", "release": release}


class Account:
    """A centre's answers, by the query they answer; the others are empty."""

    def __init__(self, answers: dict[str, list[Sample]]) -> None:
        self.answers = {status.CARRIED_ON: [Sample({}, 1)], **answers}
        self.asked: list[str] = []

    def ask(self, query: str) -> list[Sample]:
        self.asked.append(query)
        return self.answers.get(query, [])

    def rows(self, devices: list[Device] | None = None) -> dict[str, status.Row]:
        found = status.rows(self.ask, DEVICES if devices is None else devices, NOW, 600, 300)
        return {row.device: row for row in found}


def test_a_row_says_what_the_centre_knows():
    account = Account(
        {
            status.HEARD: [Sample(identity("a"), NOW - 20), Sample(identity("c"), NOW - 301)],
            status.DRIFT.format(window="600s"): [Sample({"device": "a"}, 71.5)],
            status.RTT.format(window="600s"): [Sample({"device": "a"}, 612.0), Sample({"device": "c"}, float("nan"))],
            status.RESUMED.format(window="600s"): [Sample({"device": "a"}, 0.98)],
            status.FIRING: [
                Sample({"device": "a", "alertname": "CodecDrift", "severity": "page"}, 2),
                Sample({"device": "a", "alertname": "ThermalThrottling", "severity": "ticket"}, 1),
                Sample({"device": "c", "alertname": "DeviceSilent", "severity": "ticket"}, 1),
            ],
        }
    )  # fmt: skip
    rows = account.rows()
    assert rows["a"] == status.Row(
        device="a",
        site="north",
        model="orin",
        release="1",
        state="pages",
        listed=True,
        last_seen_t=NOW - 20,
        age_s=20,
        worst_drift_ms=71.5,
        rtt_p95_ms=612,
        resume_success=0.98,
        pages=["CodecDrift"],
        tickets=["ThermalThrottling"],
    )
    assert rows["b"] == status.Row(device="b", site="south", state="never seen", listed=True)
    assert (rows["c"].state, rows["c"].rtt_p95_ms, rows["c"].tickets) == ("silent", None, ["DeviceSilent"])
    assert status.HEARD_IN_A_DAY not in account.asked


def test_a_device_that_nobody_listed_is_told_apart():
    rows = Account({status.HEARD: [Sample(identity("z"), NOW)]}).rows()
    assert [(name, row.listed) for name, row in rows.items()] == [
        ("a", True),
        ("b", True),
        ("c", True),
        ("z", False),
    ]
    assert rows["z"].state == "well"
    assert status.summary(list(rows.values())) == "4 devices: 1 well, 3 never seen, 1 not in the fleet file"


def test_without_a_fleet_file_nobody_is_a_stranger():
    rows = Account({status.HEARD: [Sample(identity("z"), NOW)]}).rows([])
    assert status.summary(list(rows.values())) == "1 device: 1 well"


def test_a_device_with_a_new_release_is_what_it_was_last():
    rows = Account(
        {status.HEARD: [Sample(identity("a", "1"), NOW - 90), Sample(identity("a", "2"), NOW - 5), Sample(identity("a", "0"), NOW - 800)]}
    ).rows()  # fmt: skip
    assert (rows["a"].release, rows["a"].age_s) == ("2", 5)


def test_a_device_that_sends_what_is_old_is_not_silent():
    rows = Account(
        {
            status.HEARD: [Sample(identity("a"), NOW - 400), Sample(identity("c"), NOW - 400)],
            status.HEARD_LATELY.format(silent=300): [Sample({"device": "a"}, 3)],
        }
    ).rows()
    assert (rows["a"].state, rows["c"].state) == ("well", "silent")


def test_a_centre_without_the_rules_is_asked_for_a_day():
    account = Account({status.CARRIED_ON: [], status.HEARD_IN_A_DAY: [Sample(identity("c"), NOW - 9000)]})
    assert account.rows()["c"].age_s == 9000


def test_the_table():
    rows = Account(
        {
            status.HEARD: [Sample(identity("a"), NOW - 20), Sample(identity("c"), NOW - 9000), Sample(identity("d"), NOW + 61)],
            status.DRIFT.format(window="600s"): [Sample({"device": "a"}, 71.5)],
            status.RTT.format(window="600s"): [Sample({"device": "a"}, 612.4)],
            status.RESUMED.format(window="600s"): [Sample({"device": "a"}, 0.98)],
            status.FIRING: [
                Sample({"device": "a", "alertname": "CodecDrift", "severity": "page"}, 2),
                Sample({"device": "a", "alertname": "ThermalThrottling", "severity": "ticket"}, 1),
            ],
        }
    ).rows()  # fmt: skip
    found = sorted(rows.values(), key=status.SORTS["state"])
    assert status.table(found).splitlines() == [
        "device  site   release  last seen         drift ms  rtt p95  resumed  firing",
        "a       north  1        20 s ago          72        612      98.0%    CodecDrift, (ThermalThrottling)",
        "c       north  1        2 h ago, silent   -         -        -        -",
        "b       south  -        never             -         -        -        -",
        "d *     north  1        clock 61 s ahead  -         -        -        -",
    ]


@pytest.mark.parametrize(
    ("order", "names"),
    [
        ("state", "bdca"),
        ("device", "abcd"),
        ("site", "bdac"),
        ("release", "acbd"),
        ("seen", "cdab"),
        ("drift", "bdac"),
        ("rtt", "dbac"),
        ("resume", "badc"),
        ("firing", "dbac"),
    ],
)
def test_orders(order, names):
    common = {"listed": True}
    found = [
        status.Row(device="a", site="s", release="1", state="well", age_s=5, resume_success=0.9, **common),
        status.Row(
            device="b", site="n", release="2", state="pages", age_s=1, worst_drift_ms=90, rtt_p95_ms=5,
            resume_success=0.5, tickets=["x"], **common,
        ),
        status.Row(device="c", site="s", release="1", state="never seen", **common),
        status.Row(device="d", site="n", release="2", state="silent", age_s=400, rtt_p95_ms=7, worst_drift_ms=80, resume_success=1, pages=["x"], **common),
    ]  # fmt: skip
    assert "".join(row.device for row in sorted(found, key=status.SORTS[order])) == names


@contextmanager
def centre(
    answers: dict[str, list[Sample]] | None = None, code: int = 200, body: bytes | None = None
) -> Iterator[tuple[str, list]]:
    """Serve a query API that has these answers, or always this body; yield its address and the requests it got."""
    requests: list = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            requests.append((self.path, dict(self.headers), form))
            found = (answers or {}).get(form["query"][0], [])
            result = [{"metric": labels, "value": [NOW, str(value)]} for labels, value in found]
            text = json.dumps(
                {"status": "success", "data": {"resultType": "vector", "result": result}}
            ).encode()
            self.send_response(code)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.end_headers()
            self.wfile.write(text if body is None else body)

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", requests
    finally:
        server.shutdown()
        server.server_close()


def test_a_question_carries_the_token_and_asks_for_what_is_new(tmp_path):
    (tmp_path / "token").write_text("s3cret\n")
    with centre({"up": [Sample({"device": "a"}, 1)]}) as (url, requests):
        assert Centre(f"{url}/", tmp_path / "token").instant("up") == [Sample({"device": "a"}, 1)]
    path, headers, form = requests[0]
    assert (path, headers["Authorization"]) == ("/api/v1/query", "Bearer s3cret")
    assert form == {"query": ["up"], "nocache": ["1"]}


@pytest.mark.parametrize(
    ("code", "body", "said"),
    [
        (401, b"", "401 Unauthorized (is the token right?)"),
        (404, b"nothing\n here", "404 nothing here (is this the address of the API?)"),
        (302, b"", "302 Found"),
        (422, b'{"status":"error","error":"too\\nmany"}', "422 too many"),
        (200, b'{"status":"error","error":"bad"}', "bad"),
        (200, b"<html>", "this does not answer as Prometheus does"),
        (200, b'{"status":"success","data":{"resultType":"matrix","result":[]}}', "a matrix where a vector was expected"),
        (200, b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"x"]}]}}', "this does not"),
    ],
)  # fmt: skip
def test_a_centre_that_does_not_answer_well_is_told_in_one_line(code, body, said):
    with centre(code=code, body=body) as (url, requests), pytest.raises(QueryError) as caught:
        Centre(url).instant("up")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(requests) == 1


@pytest.mark.parametrize(
    "secret", [b"s3cret\nm0re\n", b"s3cret m0re", b"s3cret\x00", b"s3cret\xff", "s3crét".encode(), b" \n"]
)
def test_a_file_that_is_no_token_is_named_and_not_shown(tmp_path, secret):
    path = tmp_path / "token"
    path.write_bytes(secret)
    with pytest.raises(QueryError) as caught:
        Centre("http://127.0.0.1:1", path)
    assert str(caught.value) == f"{path}: expected a token alone, on one line, of ASCII signs without space"


def run(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(command, ["status", *(str(word) for word in words)])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def fleet(tmp_path):
    path = tmp_path / "fleet.yaml"
    path.write_text("devices: [{name: a, address: h, site: north}, {name: b, address: i, site: south}]\n")
    return path


def test_exit_code_and_json(fleet):
    import time

    answers = {status.HEARD: [Sample(identity("a"), time.time())]}
    with centre(answers) as (url, _):
        code, text, _ = run("--prometheus.url", url, "--inventory", fleet, "--json")
        assert code == 1
        assert [(row["device"], row["state"]) for row in json.loads(text)] == [
            ("b", "never seen"),
            ("a", "well"),
        ]
        code, text, _ = run("--prometheus.url", url, "--inventory", fleet, "--site", "north")
        assert code == 0
        assert text.splitlines()[-1] == "1 device: 1 well"
        assert run("--prometheus.url", url, "--inventory", fleet, "--site", "west")[0] == 2


def test_the_settings_say_where_the_centre_and_the_fleet_file_are(fleet, tmp_path):
    with centre() as (url, requests):
        config = tmp_path / "omniwatch.yaml"
        config.write_text(f"fleet: {{query_url: '{url}', inventory_file: {fleet}}}\n")
        assert run("--config.file", config)[1].splitlines()[-1] == "2 devices: 2 never seen"
        config.write_text(f"fleet: {{query_url: '{url}', inventory_file: {tmp_path}/none.yaml}}\n")
        assert run("--config.file", config)[:2] == (0, f"{'  '.join(status.COLUMNS)}\n0 devices\n")
    assert requests


def test_what_a_user_can_mend_is_exit_2(fleet, tmp_path):
    config = tmp_path / "omniwatch.yaml"
    config.write_text(f"fleet: {{inventory_file: {tmp_path}/{'n' * 300}}}\n")
    for words, said in (
        (["--prometheus.url", "centre:8428"], 'expected http://… or https://…, got "centre:8428"'),
        (["--prometheus.url", "http://127.0.0.1:1"], "http://127.0.0.1:1: Connection refused"),
        (["--prometheus.url", "http://[::1"], "http://[::1: Invalid IPv6 URL"),
        (["--inventory", tmp_path / "none"], "none: No such file or directory"),
        (["--config.file", config], f"{'n' * 300}: File name too long"),
    ):
        code, shown, stderr = run(*words)
        assert (code, shown, stderr.count("\n")) == (2, "", 1)
        assert said in stderr
