"""What `omniwatch status` says of what pages: each fault is one line that names it, and what follows from it is none."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import trustme
import yaml

from helpers.answering import Answering
from helpers.installation import device, install
from helpers.systemd_bus import Unit, systemd
from helpers.trees import grow
from helpers.waiting import wait_until
from omniwatch.bundle import health, paging_health, render, servers
from omniwatch.bundle.alertmanager import Alert, Receiver, Status, of
from omniwatch.bundle.bridge import Report, RobotReport, Undelivered
from omniwatch.bundle.finding import Finding, Unseen
from omniwatch.bundle.running import Group, Rule, difference, meaning, rule_differences, seconds
from omniwatch.bundle.servers import Answers, Page, Runtime, Target, Unanswered
from omniwatch.bundle.wiring import ALERTMANAGER, BUNDLE, PROMETHEUS, SERVERS
from omniwatch.bundle.yaml_text import load_yaml
from omniwatch.desk.child_process import ChildProcess, free_port, program
from omniwatch.settings import Settings, digest, load, parse

NOW = datetime(2026, 11, 23, 8, 0, 0, tzinfo=timezone.utc)
LONG_AGO = NOW - timedelta(days=3)
SETTINGS = parse(
    """
receivers: {watchdog_webhook_url: 'https://switch.example/orin'}
notify: {robots: [{kind: wecom, url_file: /w}]}
"""
)
AWAY = Unanswered("http://127.0.0.1:9: Connection refused")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A device whose servers are to read the bundle that is there."""
    tree = tmp_path_factory.mktemp("device")
    files = render.render(SETTINGS)
    render.write(files, tree / str(BUNDLE)[1:])
    for server in SERVERS:
        grow(tree, f"{str(server.dropin)[1:]}: ExecStart=/usr/bin/{server.package} {server.arguments}")
    return tree


def ago(s: float) -> datetime:
    return NOW - timedelta(seconds=s)


def groups(tree: Path, age_s: float = 3) -> list[Group]:
    """What Prometheus says of the rules that are written."""
    found = []
    base = tree / str(BUNDLE)[1:]
    names = load_yaml((base / PROMETHEUS.rendered).read_bytes())["rule_files"]
    for name in names:
        path = base / "alerts" / Path(name).name
        for group in load_yaml(path.read_bytes())["groups"]:
            rules = [
                Rule(
                    one.get("alert") or one["record"],
                    one["expr"],
                    duration=seconds(str(one.get("for", "0s"))) or 0,
                    labels={key: str(value) for key, value in one.get("labels", {}).items()},
                    annotations=one.get("annotations", {}),
                )
                for one in group["rules"]
            ]
            interval = seconds(str(group.get("interval", "5s"))) or 5
            file = f"{BUNDLE}/alerts/{path.name}"
            found.append(Group(group["name"], file, rules, interval, ago(age_s)))
    return found


def well(tree: Path) -> Answers:
    """What they answer where all is well."""
    (server,) = of(SETTINGS)
    base = tree / str(BUNDLE)[1:]
    watchdog = Alert({"alertname": "Watchdog", "severity": "none"}, LONG_AGO, Status("active"), [], ago(50))
    return Answers(
        ready=Page(True, "ready"),
        digest=Page(True, digest(SETTINGS)),
        metrics=Page(True, ""),
        streams=Page(True, ""),
        config=load_yaml((base / PROMETHEUS.rendered).read_bytes()),
        groups=groups(tree),
        targets=[
            Target({"job": "omniwatch"}, "up"),
            Target({"job": "alertmanager"}, "up"),
            Target({"job": "model_server"}, "down", "connection refused"),
        ],
        receivers=["http://127.0.0.1:9093/api/v2/alerts"],
        runtime=Runtime(LONG_AGO, True, LONG_AGO),
        bridge=Report([RobotReport("wecom-0", ["page"])]),
        alerts=[(server, [watchdog])],
        routing=load_yaml((base / ALERTMANAGER.rendered).read_bytes()),
    )


def judged(tree: Path, answers: Answers, **how: Any) -> list[Finding]:
    down = how.pop("down", frozenset())
    given = {"is_awaited": True, "sidecar_is_well": True, "bundle_is_well": True} | how
    found = [*paging_health.judged(SETTINGS, answers, tree, down=down, now=NOW, **given)]
    return [*found, *paging_health.robots(SETTINGS, answers, down=down, now=NOW)]


def test_where_all_is_well_nothing_is_red(root: Path) -> None:
    found = judged(root, well(root))
    assert [one.what for one in found] == [
        "Prometheus",
        "Prometheus' configuration",
        "rules",
        "scraping",
        "Alertmanager",
        "Alertmanager's configuration",
        "alerts' way",
        "heartbeat",
        "bridge",
    ]
    assert [one for one in found if one.ok is not True] == []


def changed(**answers: Any) -> Callable[[Answers, Path], Answers]:
    return lambda told, _: told._replace(**answers)


def aged(name: str, age_s: float) -> Callable[[Answers, Path], Answers]:
    def change(told: Answers, tree: Path) -> Answers:
        return told._replace(
            groups=[
                g if g.name != name else Group(g.name, g.file, g.rules, g.interval, ago(age_s))
                for g in groups(tree)
            ]
        )

    return change


def failing(told: Answers, tree: Path) -> Answers:
    first, *others = groups(tree)
    rule, *rest = first.rules
    bad = Rule(
        rule.name, rule.query, "err", "many-to-many\nmatching", rule.duration, rule.labels, rule.annotations
    )
    return told._replace(
        groups=[Group(first.name, first.file, [bad, *rest], first.interval, ago(1)), *others]
    )


def other_threshold(told: Answers, tree: Path) -> Answers:
    text = json.dumps([[g.name, [(r.name, r.query) for r in g.rules]] for g in groups(tree)])
    assert "> 60" in text
    return told._replace(
        groups=[
            Group(
                g.name,
                g.file,
                [
                    Rule(
                        r.name,
                        r.query.replace("> 60", "> 61"),
                        r.health,
                        "",
                        r.duration,
                        r.labels,
                        r.annotations,
                    )
                    if r.name == "CodecDrift"
                    else r
                    for r in g.rules
                ],
                g.interval,
                g.last_evaluation,
            )
            for g in groups(tree)
        ]
    )


def other_config(told: Answers, tree: Path) -> Answers:
    assert isinstance(told.config, dict)
    return told._replace(config=told.config | {"scrape_configs": told.config["scrape_configs"][:-1]})


def other_routing(told: Answers, tree: Path) -> Answers:
    assert isinstance(told.routing, dict)
    return told._replace(routing=told.routing | {"receivers": [{"name": "page"}] * 4})


def watchdog(age_s: float | None) -> Callable[[Answers, Path], Answers]:
    def change(told: Answers, _: Path) -> Answers:
        ((server, _alerts),) = told.alerts
        seen = (
            []
            if age_s is None
            else [Alert({"alertname": "Watchdog"}, LONG_AGO, Status("active"), [], ago(age_s))]
        )
        return told._replace(alerts=[(server, seen)])

    return change


def silent_alertmanager(told: Answers, _: Path) -> Answers:
    ((server, _alerts),) = told.alerts
    return told._replace(alerts=[(server, AWAY)], routing=AWAY)


def target(job: str, health: str) -> Callable[[Answers, Path], Answers]:
    def change(told: Answers, _: Path) -> Answers:
        assert not isinstance(told.targets, Unanswered)
        others = [one for one in told.targets if one.labels["job"] != job]
        return told._replace(targets=[*others, Target({"job": job}, health, "connection refused")])

    return change


REFUSING = Report(
    [
        RobotReport(
            "wecom-0", ["page"], 120, "93000: invalid", [Undelivered("[FIRING] CodecDrift on orin", 125)]
        )
    ]
)
FAULTS: dict[str, tuple[Callable[[Answers, Path], Answers], str, str]] = {
    "Prometheus does not answer": (
        changed(config=AWAY, groups=AWAY, targets=AWAY, receivers=AWAY, runtime=AWAY),
        "Prometheus",
        "http://127.0.0.1:9: Connection refused",
    ),
    "a group is not evaluated": (
        aged("omni_streaming", 11),
        "rules",
        "group omni_streaming was evaluated last at ",
    ),
    "a group was never evaluated": (
        aged("omni_streaming", 6e10),
        "rules",
        "group omni_streaming was evaluated never",
    ),
    "a rule fails": (failing, "rules", "cannot be evaluated: many-to-many matching"),
    "other rules run": (other_threshold, "Prometheus' configuration", "CodecDrift has another expression"),
    "another configuration runs": (other_config, "Prometheus' configuration", "scrape_configs of "),
    "a configuration was refused": (
        changed(runtime=Runtime(LONG_AGO, False, LONG_AGO)),
        "Prometheus' configuration",
        "Prometheus refused it",
    ),
    "the sidecar is not reached": (target("omniwatch", "down"), "scraping", "connection refused"),
    "Alertmanager does not answer": (silent_alertmanager, "Alertmanager", "Connection refused"),
    "other routes run": (other_routing, "Alertmanager's configuration", "receivers"),
    "alerts go elsewhere": (
        changed(receivers=["http://127.0.0.1:9999/api/v2/alerts"]),
        "alerts' way",
        "does not send alerts to http://127.0.0.1:9093",
    ),
    "Alertmanager is not reached": (
        target("alertmanager", "down"),
        "alerts' way",
        "does not reach Alertmanager: conn",
    ),
    "the heartbeat is late": (watchdog(71), "heartbeat", "has not seen the Watchdog since "),
    "no heartbeat": (watchdog(None), "heartbeat", "has not seen the Watchdog at all"),
    "a robot refuses": (
        changed(bridge=REFUSING),
        "bridge",
        "(93000: invalid); not delivered: [FIRING] CodecDrift on orin",
    ),
    "the bridge does not answer": (changed(bridge=AWAY), "bridge", "Connection refused"),
    "the bridge has other robots": (changed(bridge=Report([])), "bridge", "runs with other robots"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_one_red_line_that_names_it(root: Path, name: str) -> None:
    change, what, says = FAULTS[name]
    answers = change(well(root), root)
    if name == "a group was never evaluated":
        answers = answers._replace(
            groups=[
                Group(g.name, g.file, g.rules, g.interval) if g.name == "omni_streaming" else g
                for g in groups(root)
            ]
        )
    found = judged(root, answers)
    assert [one.what for one in found if one.ok is False] == [what], found
    (line,) = [one for one in found if one.ok is False]
    assert says in line.says
    assert len(line.says.splitlines()) == 1
    assert [one.what for one in found if one.what == what] == [what]


@pytest.mark.parametrize(
    ("down", "change"),
    [
        (PROMETHEUS.unit, changed(config=AWAY, groups=AWAY, targets=AWAY, receivers=AWAY, runtime=AWAY)),
        (
            ALERTMANAGER.unit,
            lambda told, tree: target("alertmanager", "down")(silent_alertmanager(told, tree), tree),
        ),
        ("omniwatch-notify.service", changed(bridge=AWAY)),
    ],
)
def test_what_follows_from_a_unit_that_does_not_run_is_no_fault_of_its_own(
    root: Path, down: str, change: Callable[[Answers, Path], Answers]
) -> None:
    found = judged(root, change(well(root), root), down={down})
    assert [one for one in found if one.ok is False] == []
    assert judged(root, change(well(root), root)) != found


def test_a_sidecar_that_is_not_well_is_no_fault_of_prometheus(root: Path) -> None:
    found = judged(root, target("omniwatch", "down")(well(root), root), sidecar_is_well=False)
    assert [one for one in found if one.ok is False] == []


@pytest.mark.parametrize("change", [other_threshold, other_config, other_routing])
def test_a_bundle_that_is_not_well_is_one_fault(
    root: Path, change: Callable[[Answers, Path], Answers]
) -> None:
    """What runs may be what the settings have: the bundle's line says what to do."""
    found = judged(root, change(well(root), root), bundle_is_well=False)
    assert [one for one in found if one.ok is False] == []


def test_just_after_a_start_nothing_is_late(root: Path) -> None:
    fresh = well(root)._replace(runtime=Runtime(ago(4), True, ago(4)), groups=groups(root, 6e10))
    found = {one.what: one.ok for one in judged(root, watchdog(None)(fresh, root))}
    assert (found["rules"], found["heartbeat"]) == (True, None)
    empty = fresh._replace(targets=[], receivers=[])
    found = {one.what: one.ok for one in judged(root, empty)}
    assert (found["scraping"], found["alerts' way"]) == (None, None)
    settled = empty._replace(runtime=Runtime(ago(60), True, ago(60)), groups=groups(root))
    found = {one.what: one.ok for one in judged(root, settled)}
    assert (found["scraping"], found["alerts' way"]) == (False, False)


def test_what_nobody_set_up_is_no_fault(tmp_path: Path, root: Path) -> None:
    """A device without Prometheus, and one whose Prometheus is for something else."""
    gone = silent_alertmanager(well(root), root)._replace(
        config=AWAY, groups=AWAY, targets=AWAY, receivers=AWAY, runtime=AWAY, bridge=None
    )
    assert [one.ok for one in judged(tmp_path, gone, is_awaited=False)] == [None, None]
    other = silent_alertmanager(well(root), root)._replace(targets=[], groups=[], bridge=None)
    says = [one.says for one in judged(tmp_path, other, is_awaited=False)]
    assert "omniwatch install --with-prometheus" in says[0]


GUARDED = Unanswered("http://127.0.0.1:9090 wants a password (HTTP 401)", guarded=True)
GUARDED_PROMETHEUS = changed(
    config=GUARDED, groups=GUARDED, targets=GUARDED, receivers=GUARDED, runtime=GUARDED
)


@pytest.mark.parametrize(("age_s", "says"), [(50, None), (71, "since "), (None, "at all")])
def test_a_prometheus_that_cannot_be_looked_at_is_judged_by_its_heartbeat(
    root: Path, age_s: float | None, says: str | None
) -> None:
    found = judged(root, watchdog(age_s)(GUARDED_PROMETHEUS(well(root), root), root))
    (unseen,) = [one for one in found if isinstance(one, Unseen)]
    assert unseen.what == "Prometheus"
    assert "wants a password (HTTP 401): not asked what it runs" in unseen.says
    ruled = {one.what: one for one in found if one is not unseen}
    assert {"Alertmanager", "Alertmanager's configuration", "heartbeat", "bridge"} == ruled.keys()
    red = [one for one in ruled.values() if one.ok is not True]
    assert [one.what for one in red] == (["heartbeat"] if says else [])
    assert all(one.ok is False and says and says in one.says for one in red)


def test_the_way_to_an_alertmanager_that_cannot_be_looked_at_is_known_by_prometheus(root: Path) -> None:
    told = well(root)
    ((server, _),) = told.alerts
    told = told._replace(alerts=[(server, GUARDED)], routing=GUARDED)
    found = {one.what: one for one in judged(root, told)}
    assert isinstance(found["Alertmanager"], Unseen)
    assert found["alerts' way"].ok is True
    assert (found["heartbeat"].ok, found["heartbeat"].says) == (
        None,
        "not judged: Alertmanager comes first",
    )
    found = {one.what: one for one in judged(root, target("alertmanager", "down")(told, root))}
    assert found["alerts' way"].ok is False


def test_servers_of_something_else_may_have_a_password(tmp_path: Path, root: Path) -> None:
    found = judged(tmp_path, GUARDED_PROMETHEUS(well(root), root), is_awaited=False)
    assert (found[0].what, found[0].ok, isinstance(found[0], Unseen)) == ("Prometheus", None, False)


def test_a_bundle_that_is_not_as_the_settings_have_it_is_named(root: Path) -> None:
    assert [one.ok for one in paging_health.written(SETTINGS, root)] == [True]
    (found,) = paging_health.written(parse("alerts: {drift_page_ms: 61}"), root)
    assert found.ok is False
    assert "omniwatch install --with-prometheus" in found.says


@pytest.mark.parametrize(
    ("written", "runs", "where"),
    [
        ({"a": "60s"}, {"a": "1m", "b": 2}, ""),
        ({"a": "60s"}, {"a": "2m"}, "a"),
        ({"rule_files": ["../x.yaml"]}, {"rule_files": ["/etc/x.yaml"]}, ""),
        ({"rule_files": ["../x.yaml"]}, {"rule_files": ["/etc/y.yaml"]}, "rule_files[0]"),
        ({"url": "https://a/secret"}, {"url": "<secret>"}, ""),
        ({"url": "https://a"}, {"url": "https://a/"}, ""),
        ({"matchers": ['b="1"', "a=~'x'"]}, {"matchers": ["a=~'x'", "b=1"]}, ""),
        ({"text": ""}, {}, ""),
        ({"text": "x"}, {}, "text"),
        ({}, {"basic_auth": {"username": "u"}}, "basic_auth"),
        ({"l": [{"a": 1}]}, {"l": [{"a": 1}, {"a": 2}]}, "l"),
        ({"l": [{"a": True}]}, {"l": [{"a": "true"}]}, ""),
        ({"l": {"a": 1}}, {"l": "x"}, "l"),
    ],
)
def test_what_a_server_writes_in_its_own_way_is_the_same(written: Any, runs: Any, where: str) -> None:
    assert difference(written, runs, "/etc/prometheus") == where


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("sum(x) by (a)", "sum by (a) (x)", True),
        ("rate(x[60m]) > 0.50 # why", "rate(x[1h]) > 0.5", True),
        ("x{a='b'} == 1e3", 'x{a="b"} == 1000', True),
        (r"x{a=~'a\.b'}", r'x{a=~"a\.b"}', True),
        ("x > 60", "x > 61", False),
        ("x > 60", "x < 60", False),
        ("rate(x[5m])", "rate(x[6m])", False),
        ("x == 1", "x != 1", False),
        ('x{a="b"}', 'x{a="c"}', False),
    ],
)
def test_an_expression_is_what_it_is_made_of(one: str, other: str, same: bool) -> None:
    assert (meaning(one) == meaning(other)) is same


def test_groups_that_come_and_go_are_named() -> None:
    content = {"groups": [{"name": "a", "rules": [{"record": "r", "expr": "x"}]}]}
    runs = Group("b", "/f", [], 5)
    assert sorted(rule_differences({"/f": content}, [runs])) == [
        "group a runs no more",
        "group b is no longer written",
    ]
    twice = Group("a", "/f", [Rule("r", "x"), Rule("r", "x")], 5)
    assert [*rule_differences({"/f": content}, [twice])] == ["group a has other rules"]
    for rule, what in (
        (Rule("q", "x"), "name"),
        (Rule("r", "x", duration=5), "time for which it must hold"),
        (Rule("r", "x", labels={"a": "b"}), "label"),
    ):
        assert [*rule_differences({"/f": content}, [Group("a", "/f", [rule], 5)])] == [
            f"r has another {what}"
        ]


# ---- everything together, over sockets


@contextlib.contextmanager
def hanging() -> Iterator[str]:
    """A server that takes connections and answers none."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.slow
def test_with_every_server_hanging_it_is_over_within_five_seconds(tmp_path: Path) -> None:
    install(device(tmp_path))
    with hanging() as address:
        settings = parse(
            f"""
receivers: {{watchdog_webhook_url: 'https://switch.example/orin'}}
notify: {{listen_address: '{address}', robots: [{{kind: wecom, url_file: /w}}]}}
site: {{exporter: '{address}', alertmanager: '{address}'}}
fleet: {{prometheus: '{address}'}}
"""
        )
        with systemd(tmp_path / "run/dbus", omniwatch=Unit(), omniwatch_notify=Unit()):
            began = time.monotonic()
            found = {one.what: one for one in health.running_here(settings, tmp_path)}
            took_s = time.monotonic() - began
    assert took_s < 5
    for what in ("sidecar", "Prometheus", "Alertmanager", "bridge"):
        assert found[what].ok is False
        assert found[what].says.endswith("no whole answer within 2 s")


def api(data: object) -> str:
    return json.dumps({"status": "success", "data": data})


def test_answers_of_prometheus_2_31_and_alertmanager_0_23_are_understood() -> None:
    """Their fields, and no more."""
    group = {
        "name": "omni_sidecar",
        "file": "/f",
        "rules": [{"name": "Watchdog", "query": "one", "health": "ok", "type": "alerting", "duration": 0}],
        "interval": 5,
        "limit": 0,
        "evaluationTime": 0.1,
        "lastEvaluation": "2026-11-23T08:00:00.123456789Z",
    }
    alert = {
        "labels": {"alertname": "Watchdog"},
        "startsAt": "2026-11-23T07:00:00.000Z",
        "updatedAt": "2026-11-23T08:00:00.000Z",
        "status": {"state": "active", "inhibitedBy": [], "silencedBy": []},
        "receivers": [{"name": "watchdog"}],
    }
    server = Answering(
        {
            "/api/v1/status/config": api({"yaml": "global: {}"}),
            "/api/v1/rules": api({"groups": [group]}),
            "/api/v1/targets": api(
                {"activeTargets": [{"labels": {"job": "omniwatch"}, "health": "up", "lastError": ""}]}
            ),
            "/api/v1/alertmanagers": api({"activeAlertmanagers": [{"url": "http://a/api/v2/alerts"}]}),
            "/api/v1/status/runtimeinfo": api(
                {
                    "startTime": "2026-11-23T07:00:00.1Z",
                    "CWD": "/",
                    "reloadConfigSuccess": True,
                    "lastConfigTime": "2026-11-23T07:00:00Z",
                }
            ),
            "/api/v2/alerts": json.dumps([alert]),
            "/api/v2/status": json.dumps({"config": {"original": "route: {receiver: a}"}}),
        }
    )
    try:
        settings = parse(
            f"{{site: {{alertmanager: '{server.address}'}}, fleet: {{prometheus: '{server.address}'}}}}"
        )
        told = servers.ask(settings)
    finally:
        server.close()
    assert not isinstance(told.groups, Unanswered)
    assert told.groups[0].last_evaluation.microsecond == 123457
    assert told.config == {"global": {}}
    assert told.receivers == ["http://a/api/v2/alerts"]
    assert not isinstance(told.runtime, Unanswered)
    assert told.runtime.reload_config_success
    assert told.routing == {"route": {"receiver": "a"}}
    ((_, alerts),) = told.alerts
    assert not isinstance(alerts, Unanswered)
    assert alerts[0].updated_at == NOW
    assert alerts[0].receivers == [Receiver("watchdog")]
    assert isinstance(told.ready, Unanswered)


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"data": 3}', "[" * 5000, api({"groups": [{"name": 3}]})])
def test_whatever_answers_in_prometheus_place_is_one_line(body: str) -> None:
    server = Answering({"/api/v1/rules": body})
    try:
        told = servers.ask(parse(f"fleet: {{prometheus: '{server.address}'}}"))
    finally:
        server.close()
    assert isinstance(told.groups, Unanswered)
    assert told.groups.why == f"http://{server.address}: this does not answer as Prometheus does"
    assert isinstance(told.config, Unanswered)
    assert told.config.why == f"http://{server.address}: HTTP 404"


def is_listening(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.programs
@pytest.mark.parametrize(
    ("web", "wants"),
    [
        ("basic_auth_users: {nurse: HASH}", "wants a password (HTTP 401)"),
        ("tls_server_config: {cert_file: server.pem, key_file: server.pem}", "speaks TLS alone"),
    ],
)
def test_a_real_prometheus_that_is_guarded_says_so(tmp_path: Path, web: str, wants: str) -> None:
    certificate = trustme.CA().issue_cert("localhost")
    (tmp_path / "server.pem").write_bytes(certificate.private_key_and_cert_chain_pem.bytes())
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    (tmp_path / "web.yml").write_text(web.replace("HASH", f"'{hashed}'"))
    (tmp_path / "prometheus.yml").write_text("")
    address = f"127.0.0.1:{free_port()}"
    flags = {
        "config.file": tmp_path / "prometheus.yml",
        "storage.tsdb.path": tmp_path / "data",
        "web.config.file": tmp_path / "web.yml",
        "web.listen-address": address,
    }
    argv = [program("prometheus"), *(f"--{name}={value}" for name, value in flags.items())]
    server = ChildProcess("prometheus", argv, tmp_path, f"http://{address}")
    settings = parse(f"fleet: {{prometheus: '{address}'}}")
    try:
        port = int(address.partition(":")[2])
        wait_until(lambda: is_listening(port), timeout=30, what="Prometheus to listen")
        told = servers.ask(settings)
    finally:
        server.stop()
    for one in (told.runtime, told.groups, told.config, told.targets, told.receivers):
        assert one == Unanswered(f"http://{address} {wants}", guarded=True)


@pytest.mark.parametrize(
    ("served", "ok"), [(digest(Settings()), True), (digest(SETTINGS), False), (None, None)]
)
def test_a_sidecar_with_other_settings_than_the_files_is_a_fault(
    tmp_path: Path, served: str | None, ok: bool | None
) -> None:
    answers = {"/-/ready": "ready\n", "/metrics": ""} | (
        {} if served is None else {"/-/config": f"{served}\n"}
    )
    server = Answering(answers)
    try:
        settings = parse(f"site: {{exporter: '{server.address}'}}")
        if ok:
            answers["/-/config"] = digest(settings)
        found = {one.what: one for one in health.running_here(settings, tmp_path)}
    finally:
        server.close()
    assert found["sidecar's configuration"].ok is ok


def test_a_broken_configuration_is_one_line_among_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Settings] = []

    def running(settings: Settings, root: Path, *, holds: bool) -> Iterator[Finding]:
        assert not holds
        looked.append(settings)
        yield Finding("units", True, "active")

    monkeypatch.setattr(health, "running_here", running)
    (tmp_path / "omniwatch.yaml").write_text("alerts: {drift_page_ms: sixty}")
    found = {one.what: one for one in health.findings(config=tmp_path / "omniwatch.yaml")}
    assert found["configuration"].ok is False
    assert "alerts.drift_page_ms" in found["configuration"].says
    assert found["units"].ok is True
    assert looked == [Settings()]


def test_settings_that_say_the_same_have_one_digest(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("# why\nalerts: {drift_page_ms: 60}\n")
    (tmp_path / "b.yaml").write_text(yaml.safe_dump({"site": {"device": "bus-17"}}))
    assert digest(load(tmp_path / "a.yaml")) == digest(Settings())
    assert digest(load(tmp_path / "b.yaml")) != digest(Settings())
