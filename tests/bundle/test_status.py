"""`omniwatch status`: what it finds, and that whatever it meets becomes a line of it and no traceback."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from msgspec import convert

from helpers.bundles import changed_settings
from helpers.event_files import open_folder, without_privileges
from helpers.installation import CONFIG, MANIFEST, UNIT, device, install, status
from helpers.kernel import Kernel
from helpers.systemd_bus import Unit, systemd
from helpers.trees import grow
from omniwatch.bundle import check, health, servers
from omniwatch.bundle.finding import Unseen
from omniwatch.bundle.health import counted, findings, quota, units
from omniwatch.bundle.units import BRIDGE
from omniwatch.bundle.wiring import ALERTMANAGER, PROMETHEUS
from omniwatch.host import cgroup
from omniwatch.settings import Settings, load
from omniwatch.system import parts


def test_status_of_a_good_installation(root: Path) -> None:
    install(root)
    (root / CONFIG).write_text(
        "receivers: {page_webhook_url: 'https://pager.example/x', watchdog_webhook_url: 'https://ping.example/x'}\n"
    )
    told = status(root, "--json")
    assert told.exit_code == 0
    assert {finding["what"]: finding["ok"] for finding in json.loads(told.output)} == {
        "files": True,
        "configuration": True,
        "delivery": True,
    }


def test_a_plain_installation_is_well_and_says_that_nobody_is_told(root: Path) -> None:
    done = install(root)
    steps = [line for line in done.stdout.splitlines() if line.startswith("next: ")]
    assert [
        any(word in step for step in steps)
        for word in ("--profile", "receivers", "--with-prometheus", "status")
    ] == [True] * 4
    told = status(root, "--json")
    assert told.exit_code == 0
    (delivery,) = [finding for finding in json.loads(told.output) if finding["ok"] is None]
    assert delivery["what"] == "delivery"
    assert "nobody is told of a page" in delivery["says"]


@pytest.mark.parametrize(
    "said",
    [
        "receivers: {watchdog_webhook_url: 'https://ping.example/x'}",
        "receivers: {page_webhook_url: 'http://127.0.0.1:9/x', watchdog_webhook_url: 'https://ping.example/x'}",
        "notify: {robots: [{kind: wecom, url_file: /x, severities: [ticket]}]}",
        "fleet: {remote_write_url: 'https://centre.example/api/v1/write'}",
    ],
)
@pytest.mark.slow
def test_receivers_that_are_set_and_reach_nobody_are_a_fault(root: Path, said: str) -> None:
    install(root)
    (root / CONFIG).write_text(said)
    told = status(root, "--json")
    assert told.exit_code == 1
    assert {finding["what"] for finding in json.loads(told.output) if finding["ok"] is False} == {"delivery"}


@pytest.mark.parametrize("with_server", [True, False])
def test_congestion_control_is_a_next_step_beside_a_model_server(tmp_path: Path, with_server: bool) -> None:
    steps = list(health.next_steps(Settings(), tmp_path, with_server=with_server))
    assert any("omniwatch tune --congestion" in step for step in steps) is with_server


def test_a_changed_unit_is_noticed(root: Path) -> None:
    install(root)
    with (root / UNIT).open("a") as unit:
        unit.write("# mine\n")
    (root / "opt/omniwatch/bin/omniwatch").unlink()
    told = status(root)
    assert told.exit_code == 1
    assert "/etc/systemd/system/omniwatch.service was changed" in told.output
    assert "/opt/omniwatch/bin/omniwatch is missing" in told.output


def test_the_longest_name_of_a_unit_stands_apart_from_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = health.Finding(BRIDGE.fixed_name, True, "active")
    monkeypatch.setattr(health, "findings", lambda _root: iter([finding]))
    assert status(Path("/")).output == "ok  omniwatch-notify.service        active\n"
    longest = health.Finding(ALERTMANAGER.unit, True, "active")
    monkeypatch.setattr(health, "findings", lambda _root: iter([longest]))
    assert status(Path("/")).output == "ok  prometheus-alertmanager.service active\n"


def found(root: Path) -> dict[str, str]:
    told = status(root, "--json")
    return {finding["what"]: finding["says"] for finding in json.loads(told.stdout)}


def test_what_this_user_may_not_read_is_said() -> None:
    with open_folder() as folder:
        install(device(folder))
        for name in (UNIT, CONFIG):
            (folder / name).chmod(0)
        with without_privileges():
            says = found(folder)
            assert status(folder).exit_code == 1, "files that cannot be read may have been changed"
        assert says["files"] == f"/{CONFIG}: Permission denied, /{UNIT}: Permission denied"
        assert says["configuration"] == f"{folder / CONFIG}: Permission denied"
        for name in (UNIT, CONFIG):
            (folder / name).parent.chmod(0)
        with without_privileges():
            says = found(folder)
            told = status(folder)
            assert told.exit_code == 2, "nothing is known to be wrong"
            assert [line[:4] for line in told.output.splitlines()] == ["?   ", "?   "]
            seen = [finding["seen"] for finding in json.loads(status(folder, "--json").stdout)]
            assert seen == [False, False]
        assert "Permission denied" in says["files"]
        assert says["configuration"] == f"{folder / CONFIG}: Permission denied"
        (folder / "var/lib/dpkg/info").mkdir(parents=True)
        (folder / "var/lib/dpkg/info").chmod(0)
        (folder / MANIFEST).unlink()
        with without_privileges():
            assert "Permission denied" in found(folder)["files"]
        for path in folder.rglob("*"):
            if not path.is_symlink():
                path.chmod(0o755)


@pytest.mark.slow
def test_a_folder_where_a_file_should_be_is_said(root: Path) -> None:
    install(root)
    for name in (UNIT, CONFIG):
        (root / name).unlink()
        (root / name).mkdir()
    assert found(root) == {
        "files": f"/{CONFIG}: Is a directory, /{UNIT}: Is a directory",
        "configuration": f"{root / CONFIG}: Is a directory",
    }


GOLDEN = Path(__file__).parents[1] / "data/golden/metrics.prom"


@contextmanager
def answering(words: bytes) -> Iterator[str]:
    """Something at an address that says the same to each that comes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with suppress(OSError):  # The server is shut down.
                while True:
                    connection, _ = server.accept()
                    with connection, suppress(OSError):
                        connection.recv(65536)
                        connection.sendall(words)

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(timeout=10)


@pytest.mark.parametrize(
    ("words", "ok", "says"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", False, "not an answer in HTTP: SSH-2.0-OpenSSH_9.2"),
        (
            b"HTTP/1.1 503 No\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            False,
            "the connection ended in the middle of the answer",
        ),
        (b"HTTP/1.1 503 No\r\nContent-Length: 8\r\n\r\nno\nspool", False, "not ready: no spool"),
        (
            b"HTTP/1.1 503 No\r\nContent-Length: 34\r\n\r\ntail:/a: No such file or directory",
            None,
            "waits for the first event: tail:/a: No such file",
        ),
        (
            b"HTTP/1.1 503 No\r\nContent-Length: 55\r\n\r\ntail:/a: No such file or directory; /b: Permission deni",
            False,
            "not ready: tail:/a",
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nready\n", True, "ready"),
    ],
)
@pytest.mark.slow
def test_whatever_answers_in_the_sidecars_place_becomes_a_line(
    tmp_path: Path, words: bytes, ok: bool | None, says: str
) -> None:
    with answering(words) as address:
        grow(tmp_path, f"omniwatch.yaml: site: {{exporter: '{address}'}}")
        said = {finding.what: finding for finding in findings(config=tmp_path / "omniwatch.yaml")}["sidecar"]
    assert said.ok is ok
    assert says in said.says
    assert len(said.says.splitlines()) == 1


@pytest.mark.parametrize(
    ("times", "says"), [(0, []), (3, ["3 requests to come back without the Authorization"])]
)
def test_who_comes_back_without_the_key_is_counted(times: int, says: list[str]) -> None:
    series = 'omni_resume_strangers_total{reason="unauthorized"} '
    before, _, after = GOLDEN.read_text().partition(series)
    found = list(counted(servers.Page(True, f"{before}{series}{times}.0\n{after.partition(chr(10))[2]}")))
    assert [one.says.partition(" that")[0] for one in found if one.what == "unauthorized"] == says
    assert all(one.ok is None for one in found)


def test_how_the_curves_are_known_is_said() -> None:
    shown = (
        'omni_streams_by_ear{ear="client"} 0.0\nomni_streams_by_ear{ear="kernel"} 2.0\n'
        'omni_streams_by_ear{ear="sent"} 1.0\nomniwatch_ear_up 0.0\n'
    )
    found = list(counted(servers.Page(True, shown)))
    assert list(counted(servers.Unanswered("http://orin:9842: Connection refused"))) == []
    assert [(one.what, one.ok) for one in found] == [("listeners", None), ("ear", None)]
    assert found[0].says == "curves known 2 by the server's kernel, 1 by what was sent"


def test_an_address_that_is_none_becomes_a_line(tmp_path: Path) -> None:
    grow(tmp_path, "omniwatch.yaml: site: {exporter: '127.0.0.1:port'}")
    said = {finding.what: finding for finding in findings(config=tmp_path / "omniwatch.yaml")}[
        "configuration"
    ]
    assert said.ok is False
    assert "site.exporter: expected text: HOST:PORT" in said.says


def test_a_program_without_what_the_settings_ask_for_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    grow(tmp_path, "omniwatch.yaml: fleet: {centre: true}")

    def programs() -> list[tuple[bool | None, str]]:
        looked_at = findings(config=tmp_path / "omniwatch.yaml")
        return [(one.ok, one.says.split(":")[0]) for one in looked_at if one.what == "program"]

    assert programs() == []
    monkeypatch.setattr(parts, "PACKAGE", tmp_path)
    assert programs() == [(False, "fleet.centre")]
    checked = [one.detail for one in check.check_delivery(load(tmp_path / "omniwatch.yaml"))]
    assert [detail for detail in checked if detail.startswith("fleet.centre: the running program lacks ")]


def test_a_systemd_that_does_not_answer_is_a_fault_and_none_is_not(tmp_path: Path) -> None:
    (said,) = units(Settings(), tmp_path)
    assert (said.what, said.ok) == ("systemd", None)
    grow(tmp_path, "run/systemd/system/")
    (said,) = units(Settings(), tmp_path)
    assert (said.what, isinstance(said, Unseen)) == ("systemd", True)
    assert said.says.endswith("run/dbus/system_bus_socket: No such file or directory")


@pytest.mark.parametrize(
    ("arguments", "ok"), [((), None), (("--profile", "orin"), False)], ids=["plain", "with its profile"]
)
@pytest.mark.slow
def test_a_model_server_that_is_not_there_is_a_fault_only_where_it_was_installed(
    root: Path, arguments: tuple[str, ...], ok: bool | None
) -> None:
    install(root, *arguments)
    with systemd(root / "run/dbus", omniwatch=Unit()):
        said = {finding.what: finding for finding in health.running_here(load(root / CONFIG), root)}
    assert said["omniwatch.service"].ok is True
    assert said["qwen3-omni.service"] == ("qwen3-omni.service", ok, "not installed")


@pytest.mark.parametrize(
    ("unit", "ok", "says"),
    [
        (Unit(start="enabled"), True, "active"),
        (Unit(start="static"), True, "active"),
        (
            Unit(start="disabled"),
            False,
            "active, disabled: it does not start with the device; systemctl enable ",
        ),
        (Unit("inactive", start="enabled"), False, "inactive"),
        (Unit("failed", start="enabled"), False, "failed: journalctl -u "),
        (
            Unit("inactive", load="masked", start="masked"),
            False,
            "masked, so nothing starts it: systemctl unmask ",
        ),
        (
            Unit(load="masked", start="masked-runtime"),
            False,
            "masked, so nothing starts it: systemctl unmask ",
        ),
    ],
    ids=["enabled", "static", "disabled", "stopped", "failed", "masked", "masked while it runs"],
)
def test_units_that_are_stopped_disabled_or_masked_are_faults_and_debians_too(
    root: Path, unit: Unit, ok: bool, says: str
) -> None:
    """Debian's are looked at where they read the bundle."""
    grow(root, f"{PROMETHEUS.dropin}: ExecStart=/usr/bin/prometheus {PROMETHEUS.arguments}".lstrip("/"))
    with systemd(root / "run/dbus", omniwatch=unit, prometheus=unit, qwen3_omni=Unit(start="disabled")):
        found = {one.what: one for one in units(Settings(), root)}
    for name in ("omniwatch.service", "prometheus.service"):
        assert found[name].ok is ok
        assert found[name].says.partition(name)[0] == says
    assert found["qwen3-omni.service"].ok is None, "a server that somebody else starts, in a way of his own"
    assert "prometheus-alertmanager.service" not in found


@pytest.mark.parametrize(
    ("uplink", "ok", "says"),
    [
        ({"omniwatch_uplink": Unit()}, True, "active"),
        ({"omniwatch_uplink": Unit("inactive")}, False, "inactive"),
        ({}, False, "not installed"),
    ],
)
def test_an_uplink_that_does_not_run_on_a_device_of_a_fleet_is_a_fault(
    tmp_path: Path, uplink: dict[str, Unit], ok: bool, says: str
) -> None:
    def found(settings: Settings) -> dict[str, tuple[bool | None, str]]:
        return {one.what: (one.ok, one.says) for one in units(settings, tmp_path)}

    well = {"omniwatch.service": (True, "active"), "qwen3-omni.service": (True, "active")}
    with systemd(tmp_path / "run/dbus", omniwatch=Unit(), qwen3_omni=Unit(), **uplink):
        assert found(Settings()) == well
        member = changed_settings("fleet", remote_write_url="https://centre.example/api/v1/write")
        assert found(member) == well | {"omniwatch-uplink.service": (ok, says)}


def test_the_quota_is_the_units_own_and_not_that_of_a_slice(tmp_path: Path) -> None:
    unit = Settings().server.unit
    kernel = Kernel(tmp_path, cores=1)
    grow(tmp_path, "sys/fs/cgroup/system.slice/cpu.max: 300000 100000")
    limits = list(cgroup.Reader(Settings(), tmp_path).collect())
    quotas = [s.value for f in limits for s in f.samples if s.name == "omni_server_cpu_quota_cores"]
    assert quotas == pytest.approx([0.5, 3])
    (said,) = quota(unit, 0.5, limits)
    assert said.ok is None
    assert said.says.startswith("0.5 CPUs; ")
    (kernel.directory / "cpu.max").write_text("max 100000\n")
    (said,) = quota(unit, 0.5, cgroup.Reader(Settings(), tmp_path).collect())
    assert said[1:] == (False, "0.5 CPUs asked for, the kernel applies none")


def test_what_congestion_control_listeners_have_is_said_and_no_fault() -> None:
    def said(*streams: dict[str, object]) -> list[str]:
        found = list(health.congestion(servers.Page(True, json.dumps({"streams": streams}))))
        assert all((one.what, one.ok) == ("congestion control", None) for one in found)
        return [one.says for one in found]

    cubic, bbr = {"stream": 0, "congestion": "cubic", "held_back": False}, {"congestion": "bbr"}
    assert said() == said({"congestion": None}, {}) == []
    assert said(cubic, bbr, {}, cubic) == ["listeners 1 by bbr, 2 by cubic"]
    assert said(bbr, cubic | {"held_back": True}) == [
        "listeners 1 by bbr, 1 by cubic; loss holds 1 of them back: see `omniwatch tune --congestion`"
    ]


@pytest.mark.parametrize(
    "text", ['{"streams": [{"congestion": 7}]}', "[" * 100_000, "[]", '{"a": []}', "SSH-2.0", ""]
)
def test_what_answers_without_streams_has_no_congestion_control(text: str) -> None:
    assert list(health.congestion(servers.Page(True, text))) == []
    assert list(health.congestion(servers.Unanswered("http://orin:9842: Connection refused"))) == []


def test_the_sidecar_is_asked_for_its_streams() -> None:
    body = b'{"streams": [{"stream": 0, "id": "a", "congestion": "cubic", "held_back": true}]}'
    with answering(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body) as address:
        answers = servers.ask(convert({"site": {"exporter": address}}, Settings))
    (finding,) = health.congestion(answers.streams)
    assert finding.says.startswith("listeners 1 by cubic; loss holds 1 of them back")
