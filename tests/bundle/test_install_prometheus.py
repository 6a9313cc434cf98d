"""`omniwatch install --with-prometheus`: Debian's own units read the bundle, or the lines to add are printed; and the way back."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from helpers.answering import Answering
from helpers.bundles import promtool
from helpers.installation import CONFIG, debians_servers, install, packaged, snapshot, uninstall
from helpers.trees import grow
from omniwatch.bundle import render, systemctl, wiring
from omniwatch.settings import Settings, digest, parse
from omniwatch.system import places, rooted

pytestmark = pytest.mark.slow

BUNDLE = "etc/omniwatch/bundle"
PROMETHEUS = "etc/systemd/system/prometheus.service.d/omniwatch.conf"
ALERTMANAGER = "etc/systemd/system/prometheus-alertmanager.service.d/omniwatch.conf"
FLEET = "fleet: {alertmanager_urls: ['https://centre.example'], remote_write_url: 'https://centre.example/w'}"


@pytest.fixture
def root(root: Path) -> Path:
    """A device with Debian's Prometheus and Alertmanager, as dpkg leaves them."""
    return debians_servers(root)


@pytest.fixture
def told(root: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What systemctl is asked, a line each, and whether the bundle is there then: one that only remembers stands for it, as if
    this tree's systemd ran.
    """
    directory = tmp_path_factory.mktemp("bin")
    said = directory / "said"
    there = f"[ -d {root / BUNDLE} ] && there=' with the bundle'"
    grow(directory, f'systemctl: #!/bin/sh\\n{there}\\necho "$*$there" >> {said}')
    (directory / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.setattr(systemctl, "running", lambda root: True)
    return said


@pytest.mark.programs
def test_both_read_the_bundle_and_uninstall_takes_it_back(root):
    before = snapshot(root)
    done = install(root, "--with-prometheus")
    assert done.exit_code == 0, done.output
    dropin = (root / PROMETHEUS).read_text().splitlines()
    config = "/etc/omniwatch/bundle/deploy/prometheus/prometheus.yml"
    assert dropin[1:] == [
        "[Service]",
        "ExecStart=",
        f"ExecStart=/usr/bin/prometheus --config.file={config} $ARGS",
        "ExecReload=",
        "ExecReload=/bin/sh -c 'kill -HUP \"$$MAINPID\"'",
    ]
    assert "--cluster.listen-address= $ARGS" in (root / ALERTMANAGER).read_text()
    assert (root / config[1:]).is_file()
    checked = promtool("check", "config", root / config[1:], cwd=root)
    assert checked.returncode == 0, checked.stderr
    assert install(root, "--with-prometheus").output == "nothing to change\n"
    assert install(root).output == "nothing to change\n", "they stay without the option"
    assert uninstall(root, "--purge").exit_code == 0
    assert snapshot(root) == before


def test_what_would_be_written_is_said_and_nothing_is(root):
    before = snapshot(root)
    lines = install(root, "--with-prometheus", "--dry-run").output
    assert f"would write {root / PROMETHEUS}\n" in lines
    assert f"files below {root / BUNDLE}\n" in lines
    difference = install(root, "--with-prometheus", "--diff")
    assert difference.exit_code == 1
    assert f"+++ {root / BUNDLE}/deploy/prometheus/prometheus.yml\n" in difference.output
    assert snapshot(root) == before


def test_a_change_of_the_settings_is_rendered_and_reloaded(root, told):
    assert install(root, "--with-prometheus").exit_code == 0
    units = ["prometheus.service", "prometheus-alertmanager.service"]
    assert {f"restart {unit} with the bundle" for unit in units} <= set(told.read_text().splitlines())
    told.unlink()
    (root / CONFIG).write_text("alerts: {drift_page_ms: 70}")
    done = install(root, "--with-prometheus")
    assert f"files below {root / BUNDLE}" in done.output
    reset, *others = [line for line in told.read_text().splitlines() if "prometheus" in line]
    assert others == [
        f"{verb} {unit} with the bundle" for verb in ("try-reload-or-restart", "start") for unit in units
    ]
    assert reset.startswith("reset-failed "), (
        "systemd would start none that failed often, though it is mended"
    )
    assert set(units) < set(reset.split())
    assert "> 70" in (root / BUNDLE / "alerts/streaming.rules.yaml").read_text()


def failing(told: Path, *words: str) -> None:
    """Have systemctl refuse what begins with these words, each."""
    refused = "|".join(f"'{one}'*" for one in words)
    told.with_name("systemctl").write_text(
        f'#!/bin/sh\necho "$*" >> {told}\ncase "$*" in {refused}) echo no such program >&2; exit 1;; esac\n'
    )


def asked(told: Path) -> list[str]:
    lines = [line for line in told.read_text().splitlines() if "start" in line or "reload-or" in line]
    told.write_text("")
    return lines


def test_a_reload_that_failed_is_tried_again_though_no_file_changes(root, told):
    assert install(root, "--with-prometheus").exit_code == 0
    (root / CONFIG).write_text("alerts: {drift_page_ms: 70}")
    reload, restart = "try-reload-or-restart prometheus.service", "restart omniwatch.service"
    failing(told, reload)
    done = install(root, "--with-prometheus")
    assert done.exit_code == 1
    assert f"systemctl {reload}: no such program\n" in done.stderr
    asked(told)
    failing(told, reload)
    again = install(root, "--with-prometheus")
    assert (again.exit_code, again.stdout) == (1, "nothing to change\n"), "it still fails"
    assert reload in asked(told)
    failing(told, "none")
    again = install(root, "--no-start")
    assert again.exit_code == 0
    assert asked(told) == []
    again = install(root)
    assert (again.exit_code, again.stdout) == (0, "nothing to change\n")
    found = asked(told)
    assert reload in found
    assert restart not in found
    assert not rooted.is_there(root, systemctl.OWED)
    assert install(root, "--with-prometheus").exit_code == 0
    assert reload not in asked(told), "once it has been done it is not done again"


@pytest.mark.parametrize("served", ["as written", "of before", "nothing"])
def test_a_sidecar_with_other_settings_than_the_file_is_reloaded(root, told, served):
    """Who edits omniwatch.yaml and installs again need not know that the sidecar reads it, too."""
    assert install(root).exit_code == 0
    asked(told)
    pages: dict[str, str] = {}
    sidecar = Answering(pages)
    text = f"{{alerts: {{drift_page_ms: 70}}, site: {{exporter: '{sidecar.address}'}}}}"
    (root / CONFIG).write_text(text)
    if served != "nothing":
        pages[places.CONFIG_DIGEST] = digest(parse(text, CONFIG) if served == "as written" else Settings())
    reload = "try-reload-or-restart omniwatch.service"
    try:
        assert install(root, "--no-start").exit_code == 0
        assert asked(told) == []
        assert install(root).exit_code == 0
    finally:
        sidecar.close()
    assert (reload in asked(told)) is (served == "of before")


def test_one_that_was_killed_before_the_reload_is_ended_by_the_next(root, told, monkeypatch):
    assert install(root, "--with-prometheus").exit_code == 0
    (root / CONFIG).write_text("alerts: {drift_page_ms: 70}")
    with monkeypatch.context() as patch:
        patch.setattr(systemctl, "arrive", lambda *args, **named: [])
        assert install(root, "--with-prometheus").exit_code == 0
    told.write_text("")
    assert install(root, "--with-prometheus").stdout == "nothing to change\n"
    assert "try-reload-or-restart prometheus.service with the bundle" in asked(told)


def test_what_is_owed_to_a_unit_that_is_gone_is_forgotten(root, told):
    assert install(root, "--with-prometheus").exit_code == 0
    grow(root, f"{str(systemctl.OWED)[1:]}: restart omniwatch-uplink.service\\nfall over\\n\\n")
    told.with_name("systemctl").write_text(f'#!/bin/sh\necho "$*" >> {told}\n[ "$1" != restart ] || exit 5\n')
    assert install(root).exit_code == 0
    assert "restart omniwatch-uplink.service" in asked(told)
    assert not rooted.is_there(root, systemctl.OWED)


def test_a_removal_owes_nothing(root, told):
    assert install(root, "--with-prometheus").exit_code == 0
    grow(root, f"{str(systemctl.OWED)[1:]}: restart omniwatch.service")
    assert uninstall(root, "--purge").exit_code == 0
    assert not rooted.is_there(root, systemctl.OWED)


WANTS = "etc/systemd/system/multi-user.target.wants"


def test_servers_that_were_not_enabled_are_and_then_no_more(root, told):
    """Prometheus was enabled before, Alertmanager was not."""
    was = root / WANTS / "prometheus.service"
    was.parent.mkdir(parents=True, exist_ok=True)
    was.symlink_to("/lib/systemd/system/prometheus.service")
    assert f"would write {root / WANTS}/prometheus-alertmanager.service\n" in (
        install(root, "--with-prometheus", "--dry-run").output
    )
    assert install(root, "--with-prometheus").exit_code == 0
    link = root / WANTS / "prometheus-alertmanager.service"
    assert (link.parent / link.readlink()).resolve() == (root / "lib/systemd/system" / link.name).resolve()
    found = asked(told)
    assert {
        "start prometheus.service with the bundle",
        "start prometheus-alertmanager.service with the bundle",
    } <= {*found}
    assert install(root, "--with-prometheus").stdout == "nothing to change\n"
    assert install(root).stdout == "nothing to change\n"
    told.write_text("")
    assert uninstall(root).exit_code == 0
    assert not link.is_symlink()
    assert was.readlink() == Path("/lib/systemd/system/prometheus.service")
    lines = told.read_text().splitlines()
    assert "stop prometheus-alertmanager.service with the bundle" in lines
    assert "try-restart prometheus.service with the bundle" in lines
    assert not [
        line for line in lines if "stop prometheus.service" in line or "try-restart prometheus-a" in line
    ]


def test_a_server_that_somebody_has_enabled_since_stays_enabled(root):
    assert install(root, "--with-prometheus").exit_code == 0
    link = root / WANTS / "prometheus.service"
    link.unlink()
    link.symlink_to("/lib/systemd/system/prometheus.service")
    assert install(root, "--with-prometheus").stdout == "nothing to change\n"
    assert uninstall(root, "--purge").exit_code == 0
    assert link.is_symlink()


def test_one_that_was_disabled_since_is_enabled_again(root):
    assert install(root, "--with-prometheus").exit_code == 0
    (root / WANTS / "prometheus.service").unlink()
    assert f"wrote {root / WANTS}/prometheus.service\n" in install(root, "--with-prometheus").output


def test_debians_servers_are_back_on_their_own_configuration_before_the_bundle_goes(root, told):
    for name in ("prometheus.service", "prometheus-alertmanager.service"):
        (root / WANTS).mkdir(parents=True, exist_ok=True)
        (root / WANTS / name).symlink_to(f"/lib/systemd/system/{name}")
    assert install(root, "--with-prometheus").exit_code == 0
    told.unlink()
    assert uninstall(root, "--purge").exit_code == 0
    lines = told.read_text().splitlines()
    assert "try-restart prometheus.service with the bundle" in lines
    assert (
        "daemon-reload with the bundle"
        in lines[: lines.index("try-restart prometheus.service with the bundle")]
    )
    assert not (root / "etc/omniwatch").exists()


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ("etc/prometheus/prometheus.yml: global: {}", "prometheus.yml: not as Debian ships it"),
        ('etc/default/prometheus: ARGS="--web.listen-address=:9999"', "default/prometheus: not as Debian"),
        ("etc/systemd/system/prometheus.service: [Service]", "stands in for the unit that Debian ships"),
        (
            "etc/systemd/system/prometheus.service.d/own.conf: [Service]\\nExecStart=",
            "starts the server in a way of its own",
        ),
        ("usr/lib/systemd/system/prometheus.service: [Service]", "not the unit that Debian ships"),
        ("etc/prometheus/alertmanager.yml: route: {}", "alertmanager.yml: not as Debian ships it"),
    ],
)
def test_what_somebody_has_changed_is_left_alone(root, tree, said):
    grow(root, tree)
    before = snapshot(root)
    done = install(root, "--with-prometheus")
    assert done.exit_code == 2
    assert said in done.stderr
    assert 'ARGS="--config.file=/etc/omniwatch/bundle/deploy/' in done.stderr
    assert snapshot(root) == before


@pytest.mark.programs
def test_the_lines_to_add_hold(root):
    grow(root, "etc/prometheus/prometheus.yml: global: {}")
    said = install(root, "--with-prometheus").stderr
    added = said.split("add to its configuration\n")[1]
    assert yaml.safe_load(added)["alerting"]["alert_relabel_configs"], "the fault that pages are grouped by"
    render.write(render.render(Settings()), root / BUNDLE)
    config = root / "prometheus.yml"
    config.write_text(added.replace("/etc/omniwatch", str(root / "etc/omniwatch")))
    checked = promtool("check", "config", config, cwd=root)
    assert checked.returncode == 0, checked.stderr
    assert "10 rule files found" in checked.stdout


def test_a_server_that_is_not_installed_is_named(root):
    (root / "var/lib/dpkg/status").write_text("")
    done = install(root, "--with-prometheus")
    assert done.exit_code == 2
    assert "apt-get install --no-install-recommends prometheus-alertmanager brings it" in done.stderr


def test_in_a_fleet_the_devices_alertmanager_is_left_to_debian(root):
    assert install(root, "--with-prometheus").exit_code == 0
    (root / CONFIG).write_text(FLEET)
    done = install(root, "--with-prometheus")
    assert done.exit_code == 0, done.output
    assert f"removed {root / ALERTMANAGER}" in done.output
    assert (root / PROMETHEUS).exists()


def test_a_packages_sidecar_is_left_alone(root):
    packaged(root)
    assert install(root, "--with-prometheus").exit_code == 0
    assert (root / PROMETHEUS).exists()
    assert not (root / "etc/systemd/system/omniwatch.service").exists()
    assert uninstall(root).exit_code == 0
    assert not (root / PROMETHEUS).exists()


def test_a_purge_keeps_what_a_server_reads_all_the_same(root):
    assert install(root, "--with-prometheus").exit_code == 0
    grow(
        root,
        'etc/default/prometheus: ARGS="--config.file=/etc/omniwatch/bundle/deploy/prometheus/prometheus.yml"',
    )
    trial = uninstall(root, "--purge", "--dry-run")
    assert f"would keep {root / 'etc/omniwatch'}\n" in trial.output
    done = uninstall(root, "--purge")
    assert done.exit_code == 1
    assert f"{root / 'etc/default/prometheus'} reads /etc/omniwatch/bundle: point it elsewhere" in done.stderr
    assert (root / BUNDLE / "deploy/prometheus/prometheus.yml").exists()
    grow(
        root, "etc/default/prometheus: # --config.file=/etc/omniwatch/bundle/deploy/prometheus/prometheus.yml"
    )
    assert uninstall(root, "--purge", "--yes").exit_code == 0
    assert not (root / "etc/omniwatch").exists()


def test_a_process_that_reads_the_bundle_counts_as_well(root):
    config = "/etc/omniwatch/bundle/deploy/prometheus/prometheus.yml"
    grow(root, f"proc/77/cmdline: /usr/bin/prometheus\\0--config.file={config}\\0")
    assert wiring.readers(root) == ["/usr/bin/prometheus (process 77)"]


def test_an_alertmanager_that_is_not_debians_is_run_by_debians_unit(root):
    """It keeps its data where Debian's kept them."""
    program = grow(root, "usr/local/bin/alertmanager: upstream's") / "usr/local/bin/alertmanager"
    program.chmod(0o755)
    assert install(root, "--with-prometheus").exit_code == 0
    lines = (root / ALERTMANAGER).read_text().splitlines()
    started = next(line for line in lines if line.startswith("ExecStart=/"))
    assert started.startswith("ExecStart=/usr/local/bin/alertmanager --config.file=/etc/omniwatch/bundle/")
    assert started.endswith("--storage.path=/var/lib/prometheus/alertmanager $ARGS")
    program.unlink()
    assert install(root, "--with-prometheus").exit_code == 0
    assert "ExecStart=/usr/bin/prometheus-alertmanager " in (root / ALERTMANAGER).read_text()
