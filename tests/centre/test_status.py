"""`omniwatch fleet status`: what is made of the centre's answers, and of answers that are none."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from helpers.fake_prometheus import NOW, centre
from omniwatch.centre import status
from omniwatch.centre.inventory import Device
from omniwatch.centre.query import Sample
from omniwatch.cli import main

FIRING = status.FIRING.format(slack=30)
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

    def rows(self, devices: list[Device] | None = None) -> dict[str, status.DeviceStatus]:
        found = status.rows(self.ask, DEVICES if devices is None else devices, NOW, 600, 300, 15)
        return {row.device: row for row in found}


def test_a_row_says_what_the_centre_knows():
    account = Account(
        {
            status.HEARD: [Sample(identity("a"), NOW - 20), Sample(identity("c"), NOW - 301)],
            status.DRIFT.format(window="600s"): [Sample({"device": "a"}, 71.5)],
            status.RTT.format(window="600s"): [Sample({"device": "a"}, 612.0), Sample({"device": "c"}, float("nan"))],
            status.RESUMED.format(window="600s"): [Sample({"device": "a"}, 0.98)],
            FIRING: [
                Sample({"device": "a", "alertname": "CodecDrift", "severity": "page"}, 2),
                Sample({"device": "a", "alertname": "HardwareThrottling", "severity": "ticket"}, 1),
                Sample({"device": "c", "alertname": "DeviceSilent", "severity": "ticket"}, 1),
            ],
        }
    )  # fmt: skip
    rows = account.rows()
    assert rows["a"] == status.DeviceStatus(
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
        tickets=["HardwareThrottling"],
    )
    assert rows["b"] == status.DeviceStatus(device="b", site="south", state="never seen", listed=True)
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


def test_what_is_of_no_device_or_no_number_is_passed_over():
    drift, nobody = status.DRIFT.format(window="600s"), {"site": "north"}
    unheard = [Sample(identity("a"), float("nan")), Sample(identity("b"), float("inf")), Sample(nobody, NOW)]
    rows = Account(
        {status.HEARD: unheard, drift: [Sample(nobody, 5.0), Sample({"device": "a"}, 71.5)]}
    ).rows()
    assert [(name, row.state) for name, row in rows.items()] == [(name, "never seen") for name in "abc"]
    assert rows["a"].worst_drift_ms == 71.5


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
            FIRING: [
                Sample({"device": "a", "alertname": "CodecDrift", "severity": "page"}, 2),
                Sample({"device": "a", "alertname": "HardwareThrottling", "severity": "ticket"}, 1),
            ],
        }
    ).rows()  # fmt: skip
    found = sorted(rows.values(), key=status.SORTS["state"])
    assert status.table(found).splitlines() == [
        "device  site   release  last seen         drift ms  rtt p95  resumed  firing",
        "a       north  1        20 s ago          72        612      98.0%    CodecDrift, (HardwareThrottling)",
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
        status.DeviceStatus(device="a", site="s", release="1", state="well", age_s=5, resume_success=0.9, **common),
        status.DeviceStatus(
            device="b", site="n", release="2", state="pages", age_s=1, worst_drift_ms=90, rtt_p95_ms=5,
            resume_success=0.5, tickets=["x"], **common,
        ),
        status.DeviceStatus(device="c", site="s", release="1", state="never seen", **common),
        status.DeviceStatus(device="d", site="n", release="2", state="silent", age_s=400, rtt_p95_ms=7, worst_drift_ms=80, resume_success=1, pages=["x"], **common),
    ]  # fmt: skip
    assert "".join(row.device for row in sorted(found, key=status.SORTS[order])) == names


def run(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, ["fleet", "status", *(str(word) for word in words)])
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


def test_the_token_goes_to_the_centre_of_the_settings_and_to_no_other(tmp_path):
    (tmp_path / "token").write_text("s3cret")
    (tmp_path / "other").write_text("another")
    config = tmp_path / "omniwatch.yaml"
    with centre() as (url, at_home), centre() as (elsewhere, abroad):
        config.write_text(f"fleet: {{query_url: '{url}', token_file: {tmp_path}/token}}\n")
        for words in ((), (f"--prometheus.url={url}",), (f"--prometheus.url={elsewhere}",)):
            assert run(f"--config.file={config}", *words)[0] == 0
        assert {headers["Authorization"] for _, headers, _ in at_home} == {"Bearer s3cret"}
        assert {headers.get("Authorization") for _, headers, _ in abroad} == {None}
        abroad.clear()
        run(f"--config.file={config}", f"--prometheus.url={elsewhere}", f"--token-file={tmp_path}/other")
        assert {headers["Authorization"] for _, headers, _ in abroad} == {"Bearer another"}


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
