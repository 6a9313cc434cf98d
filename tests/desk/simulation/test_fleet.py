"""The simulated fleet: what its devices send, when they are away, and the server that answers for them."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from omniwatch.centre import inventory, uplink_metrics
from omniwatch.cli import main
from omniwatch.desk.simulation import fleet
from omniwatch.desk.simulation.fleet import Plan, exposition, members

T0 = 1_800_000_000.0
OTHER_AGENT = "uplink:queue_behind_seconds:max"


def values(member: fleet.Member, t: float) -> dict[str, float]:
    return {f"{name}{{{labels}}}": value for name, labels, value in fleet.series(member, t)}


def test_every_family_of_the_uplink_moves_in_some_way():
    assert {family.name for family in uplink_metrics.FAMILIES} == {
        *(*fleet.VALUES, fleet.ALERT, fleet.BAD, OTHER_AGENT)
    }


def test_the_same_seed_is_the_same_fleet_and_another_is_not():
    plan = Plan(5, seed=3)
    pages = [exposition(member, T0) for member in members(plan)]
    assert pages == [exposition(member, T0) for member in members(plan)]
    assert pages != [exposition(member, T0) for member in members(plan._replace(seed=4))]
    assert pages[:3] == [exposition(member, T0) for member in members(plan._replace(devices=3))]


def test_counters_only_grow_and_parts_are_no_larger_than_their_wholes():
    parts = {
        "uplink:turns_in_sync_total": "uplink:turns_total",
        "uplink:answers_in_time_total": "uplink:answers_total",
        "uplink:resumes_well_total": "uplink:resumes_total",
        "uplink:frames_lost_total": "uplink:frames_total",
    }
    for member in members(Plan(20)):
        before: dict[str, float] = {}
        for step in range(400):
            rows = list(fleet.series(member, T0 + step * 15))
            now = {name: value for name, _, value in rows} | {
                labels: value for name, labels, value in rows if name == fleet.BAD
            }
            assert sum(now[labels] for labels in fleet.BAD_TURNS) <= now["uplink:turns_judged_total"]
            for name, value in now.items():
                assert (
                    not name.endswith(("_total", '"')) or name == fleet.BAD or value >= before.get(name, 0)
                ), (name, step)
            assert all(now[part] <= now[whole] for part, whole in parts.items())
            before = now


def test_a_share_of_the_fleet_is_away_for_the_time_asked():
    plan = Plan(400, outage_share=0.1, outage_s=120)
    fleet_now = members(plan)
    away = [sum(not member.answers(T0 + at) for member in fleet_now) for at in range(0, 6000, 60)]
    assert sum(away) / len(away) == pytest.approx(40, abs=6)
    lengths = set()
    for member in fleet_now[:40]:
        answers = [member.answers(T0 + at) for at in range(2400)]
        begins = next((at for at in range(1, 1200) if answers[at - 1] and not answers[at]), None)
        if begins is not None:
            lengths.add(answers.index(True, begins) - begins)
    assert lengths <= {119, 120, 121}
    assert lengths
    assert all(
        member.answers(T0 + at) for member in members(Plan(50, outage_share=0)) for at in range(0, 9000, 90)
    )


def test_a_clock_that_is_off_stamps_what_it_sends():
    fleet_now = members(Plan(300, skewed_share=0.2))
    skewed = [member for member in fleet_now if member.skew_s]
    assert 40 <= len(skewed) <= 80
    assert all(60 <= abs(member.skew_s) <= 480 for member in skewed)
    assert {member.skew_s > 0 for member in skewed} == {True, False}
    for member in skewed[:5]:
        assert values(member, T0)["uplink:time_seconds{}"] == T0 + member.skew_s
        stamps = {line.rsplit(" ", 1)[1] for line in exposition(member, T0).splitlines()}
        assert stamps == {str(round((T0 + member.skew_s) * 1000))}
    sound = next(member for member in fleet_now if not member.skew_s)
    assert {len(line.split()) for line in exposition(sound, T0).splitlines()} == {2}


def test_trouble_raises_the_curve_and_then_the_alert_and_is_worse_on_the_new_release():
    fleet_now = members(Plan(2000))
    firing = dict.fromkeys(fleet.RELEASES, 0)
    for member in fleet_now:
        page = [(labels, value) for name, labels, value in fleet.series(member, T0) if name == fleet.ALERT]
        firing[member.release] += len(page)
        if page:
            name = "uplink:rtt_ms:max{}" if member.late else "uplink:drift_abs_ms:max{}"
            assert values(member, T0)[name] > values(member, T0 + 300)[name]
            assert ("TokenRTT" if member.late else "CodecDrift") in page[0][0]
    sizes = {release: sum(m.release == release for m in fleet_now) for release in firing}
    old, new = fleet.RELEASES[0], fleet.RELEASES[-1]
    assert 0 < firing[old] / sizes[old] < firing[new] / sizes[new] < 0.1


def test_the_page_reads_as_prometheus_text_and_stays_within_a_devices_allowance():
    member = members(Plan(1, skewed_share=0))[0]
    text = exposition(member, T0, labelled=True, stamped=True)
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert 20 <= len(samples) <= 300
    assert len({(sample.name, *sample.labels.items()) for sample in samples}) == len(samples)
    own = {"site": member.site, "device": member.name, "model": member.model, "release": member.release}
    assert all(own.items() <= sample.labels.items() for sample in samples)


@contextmanager
def simulated(*words: str) -> Iterator[str]:
    command = [
        sys.executable,
        "-m",
        "omniwatch",
        "simulate",
        "fleet",
        "--web.listen-address=127.0.0.1:0",
        *words,
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        try:
            yield line.split(" at ")[1].split("/targets")[0]
        finally:
            process.send_signal(signal.SIGTERM)
            last = process.stderr.read()
            assert "while away" in last, line + last
    assert process.returncode == 0


def get(url: str) -> tuple[str, str]:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_a_device_answers_at_the_place_that_targets_and_fleet_file_say():
    with simulated("3", "--outages", "0", "--skewed", "0") as url:
        kind, text = get(f"{url}/targets")
        assert kind == "application/json"
        groups = json.loads(text)
        devices = inventory.parse(get(f"{url}/fleet.yaml")[1]).devices
        assert [group["labels"]["device"] for group in groups] == [device.name for device in devices]
        place = groups[2]["targets"][0] + groups[2]["labels"]["__metrics_path__"]
        kind, page = get(f"http://{place}")
        assert kind.startswith("text/plain; version=0.0.4")
        assert "uplink:time_seconds 1" in page
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(f"{url}/devices/nobody/metrics")


def test_a_connection_stays_open_and_its_requests_are_answered_in_order():
    with simulated("2", "--outages", "0") as url:
        host, port = url.removeprefix("http://").split(":")
        asked = b"".join(
            f"GET /devices/device-0000{n}/metrics HTTP/1.1\r\nHost: x\r\n\r\n".encode() for n in (1, 0, 1)
        )
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(asked[:30])
            connection.sendall(asked[30:])
            connection.sendall(b"GET /none HTTP/1.1\r\nConnection: close\r\n\r\n")
            received = b""
            while data := connection.recv(65536):
                received += data
    heads = [part.split(b"\r\n")[0] for part in received.split(b"HTTP/1.1 ")[1:]]
    assert heads == [b"200 OK"] * 3 + [b"404 Not Found"]
    assert received.count(b"uplink:time_seconds ") == 3


def test_a_device_that_is_away_does_not_answer():
    plan = Plan(20, outage_share=0.5, outage_s=36_000)
    answer = {True: 0, False: 0}
    with simulated("20", "--outages", "0.5", "--outage", "36000") as url:
        for member in members(plan):
            page = f"{url}/devices/{member.name}/metrics"
            answers = member.answers(time.time())
            answer[answers] += 1
            if answers:
                assert "uplink:time_seconds" in get(page)[1]
            else:
                with pytest.raises(ConnectionError):
                    get(page)
    assert all(answer.values())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--scenario", "steady", "fleet", "2"], "--scenario: not before fleet"),
        (["--seed", "2", "fleet", "2"], "--seed: not before fleet"),
        (["fleet", "2", "--web.listen-address", "nowhere"], "--web.listen-address: expected host:port"),
        (["fleet", "2", "--web.listen-address", "192.0.2.1:1"], "192.0.2.1:1: "),
    ],
)
def test_what_a_user_can_mend(options, said):
    done = subprocess.run(
        [sys.executable, "-m", "omniwatch", "simulate", *options],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr


@pytest.mark.parametrize(
    "option", [("--outages", "nan"), ("--outage", "nan"), ("--outage", "inf"), ("--skewed", "nan")]
)
def test_a_share_or_a_time_is_a_number(option):
    done = CliRunner().invoke(main, ["simulate", "fleet", "2", "--web.listen-address", "nowhere", *option])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.endswith(f"Invalid value for '{option[0]}': {option[1]} is not a finite number.\n")
