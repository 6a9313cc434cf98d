"""`omniwatch uninstall`: what goes, what stays, what comes back, and how the package's removal asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.installation import (
    CONFIG,
    LEFT,
    MANIFEST,
    SERVER_UNIT,
    UNIT,
    install,
    packaged,
    snapshot,
    uninstall,
)
from helpers.trees import grow
from omniwatch.bundle import data
from omniwatch.tune import congestion, dropin
from omniwatch.tune.model import Limit

OTHER_UNIT = "etc/systemd/system/own.service"


def tune(root: Path, unit: str) -> Path:
    """What `omniwatch tune --apply` does."""
    return dropin.apply(unit, dropin.text(unit, Limit(None), 900, None), lambda: None, root)


def test_the_drop_in_of_tune_goes_with_the_rest(root: Path) -> None:
    before = snapshot(root)
    install(root, "--profile", "orin")
    tune(root, "qwen3-omni.service")
    uninstall(root, "--purge")
    assert snapshot(root) == before


KERNEL = "proc/sys/net/ipv4/tcp_congestion_control: cubic\nproc/sys/net/ipv4/tcp_available_congestion_control: cubic bbr"


def test_the_bbr_of_tune_goes_with_the_rest(root: Path) -> None:
    grow(root, KERNEL)
    install(root)
    assert congestion.apply(congestion.files(congestion.look(root), root), root) == ""
    target = root / str(congestion.SYSCTL)[1:]
    assert f"would take back {target}" in uninstall(root, "--dry-run").output
    assert target.exists()
    done = uninstall(root)
    assert done.exit_code == 0, done.output
    assert f"took back {target}" in done.output
    assert not target.exists()


@pytest.mark.slow
def test_the_users_own_drop_ins_stay(root: Path) -> None:
    install(root, "--profile", "orin")
    grow(root, f"{SERVER_UNIT}.d/10-own.conf: [Service]\\nNice=1")
    tune(root, "qwen3-omni.service")
    uninstall(root, "--purge")
    assert [path.name for path in (root / f"{SERVER_UNIT}.d").iterdir()] == ["10-own.conf"]


def test_uninstalling_nothing_is_an_error(root: Path) -> None:
    done = uninstall(root)
    assert done.exit_code == 2
    assert "omniwatch install has put nothing here" in done.stderr


@pytest.mark.slow
def test_a_unit_that_was_changed_stays_until_it_is_purged(root: Path) -> None:
    before = snapshot(root)
    install(root, "--profile", "orin")
    unit = root / SERVER_UNIT
    edited = unit.read_text().replace("[Service]", "[Service]\nNice=1")
    unit.write_text(edited)
    assert f"would keep {unit}, changed since it was installed\n" in uninstall(root, "--dry-run").output
    done = uninstall(root)
    assert f"kept {unit}, changed since it was installed\n" in done.output
    assert unit.read_text() == edited
    assert not (root / UNIT).exists()
    assert not (unit.parent / "multi-user.target.wants").exists()
    refused = install(root, "--profile", "orin")
    assert (refused.exit_code, unit.read_text()) == (2, edited)
    assert install(root, "--profile", "orin", "--force").exit_code == 0
    unit.write_text(edited)
    told = uninstall(root, "--purge", "--yes").output
    assert f"removed {unit}, changed since it was installed\n" in told
    assert snapshot(root) == before


def test_a_unit_that_a_removal_has_kept_goes_with_a_purge_after_it(root: Path) -> None:
    before = snapshot(root)
    install(root, "--profile", "orin")
    (root / SERVER_UNIT).write_text("[Service]\n")
    uninstall(root)
    done = uninstall(root, "--purge", "--yes")
    assert f"removed {root / SERVER_UNIT}, changed since it was installed\n" in done.output
    assert snapshot(root) == before


def test_a_purge_leaves_alone_what_lies_where_nothing_was_installed(root: Path) -> None:
    grow(root, "etc/omniwatch/fleet.yaml: the centre's own")
    grow(root, "var/lib/qwen3-omni/mine: a model")
    before = snapshot(root)
    done = uninstall(root, "--purge")
    assert (done.exit_code, snapshot(root)) == (2, before)
    assert "omniwatch install has put nothing here" in done.stderr


def test_a_folder_in_a_files_place_stays_and_a_link_that_systemd_wrote_goes(root: Path) -> None:
    install(root, "--profile", "orin")
    (root / SERVER_UNIT).unlink()
    grow(root, f"{SERVER_UNIT}/own: mine")
    link = root / "etc/systemd/system/multi-user.target.wants/omniwatch.service"
    link.unlink()
    link.symlink_to("/etc/systemd/system/omniwatch.service")
    assert uninstall(root).exit_code == 0
    assert (root / SERVER_UNIT / "own").exists()
    assert not os.path.lexists(link)


def test_a_purge_takes_what_an_earlier_removal_left(root: Path) -> None:
    install(root)
    grow(root, "var/lib/omniwatch-uplink/queue: waits for the centre")
    uninstall(root)
    assert uninstall(root).exit_code == 2
    done = uninstall(root, "--purge")
    assert done.exit_code == 0, done.output
    assert not any((root / name).exists() for name in ("etc/omniwatch", "var/lib/omniwatch-uplink"))
    again = uninstall(root, "--purge")
    assert again.exit_code == 2
    assert "omniwatch install has put nothing here" in again.stderr


SECRETS = ("etc/omniwatch/secrets/slack", "etc/omniwatch/web.yml")


def with_secrets(root: Path) -> Path:
    """An installation in which a user has changed the settings and put two files of their own."""
    install(root)
    (root / CONFIG).write_text("site: {device: bus-7}\n")
    return grow(root, "\n".join(f"{name}: mine" for name in SECRETS))


@pytest.mark.slow
def test_a_purge_lists_what_the_user_made_and_refuses_where_nobody_can_be_asked(root: Path) -> None:
    with_secrets(root)
    before = snapshot(root)
    done = uninstall(root, "--purge")
    *listed, last = done.stderr.splitlines()
    assert sorted(listed) == sorted(f"you made or changed {root / name}" for name in (CONFIG, *SECRETS))
    assert last == "Error: --purge would remove what you made, nothing is removed; with --yes it does not ask"
    assert done.exit_code == 2
    assert snapshot(root) == before
    told = uninstall(root, "--purge", "--dry-run").output
    assert all(
        f"would remove {root / name}, which you made or changed\n" in told for name in (CONFIG, *SECRETS)
    )
    assert uninstall(root, "--purge", "--yes").exit_code == 0
    assert not (root / "etc/omniwatch").exists()


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 2), ("\n", 2)])
def test_on_a_terminal_a_purge_asks(root: Path, answer: str, code: int) -> None:
    with_secrets(root)
    near, far = os.openpty()
    command = [sys.executable, "-m", "omniwatch", "uninstall", "--root", str(root), "--purge"]
    os.write(near, answer.encode())
    done = subprocess.run(command, stdin=far, capture_output=True, text=True, timeout=60, check=False)
    os.close(near)
    os.close(far)
    assert "Remove it for good? [y/N]" in done.stderr
    assert done.returncode == code, done.stderr
    assert (root / SECRETS[0]).exists() == bool(code)


def test_without_purge_only_config_and_state_stay(root: Path) -> None:
    before = snapshot(root)
    install(root)
    grow(root, "var/lib/omniwatch/checkpoint: counted so far")
    done = uninstall(root)
    assert f"kept {root / CONFIG}" in done.output
    left = snapshot(root).keys() - before.keys()
    assert left == {
        "etc/omniwatch",
        CONFIG,
        LEFT,
        "var",
        "var/lib",
        "var/lib/omniwatch",
        "var/lib/omniwatch/checkpoint",
    }


@pytest.mark.slow
@pytest.mark.parametrize("unit", [SERVER_UNIT, OTHER_UNIT], ids=["our server", "another server"])
def test_the_users_drop_in_that_tune_put_aside_comes_back(root: Path, unit: str) -> None:
    grow(root, f"{unit}.d/50-cpu.conf: [Service]\\nCPUQuota=80%")
    before = snapshot(root)
    install(root, "--profile", "orin")
    target = tune(root, Path(unit).name)
    told = uninstall(root, "--purge", "--dry-run")
    assert f"would restore {target}" in told.output
    assert "CPUWeight" in target.read_text()
    done = uninstall(root, "--purge")
    assert done.exit_code == 0, done.output
    assert f"restored {target}" in done.output
    assert snapshot(root) == before


@pytest.mark.slow
def test_the_drop_ins_of_units_that_omniwatch_did_not_install_go_too(root: Path) -> None:
    grow(root, "etc/systemd/system/foreign.service.d/50-cpu.conf: [Service]\\nCPUQuota=80%")
    (root / "etc/systemd/system/foreign.service.d/50-cpu.conf").write_bytes(b"# \xff\n")
    before = snapshot(root)
    install(root)
    targets = [tune(root, "own.service"), tune(root, "ai.slice")]
    told = uninstall(root, "--purge", "--dry-run").output
    assert all(f"would remove {target}" in told for target in targets)
    assert uninstall(root, "--purge").exit_code == 0
    assert snapshot(root) == before


def test_where_nothing_is_installed_a_drop_ins_way_back_is_named(root: Path) -> None:
    target = tune(root, "own.service")
    done = uninstall(root)
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
    assert f"`omniwatch tune --unit own.service --revert` takes {target} back" in done.stderr
    assert target.exists()


def test_beside_a_package_there_may_be_nothing_but_a_drop_in_or_nothing_at_all(root: Path) -> None:
    grow(packaged(root), f"{CONFIG}: {{}}")
    before = snapshot(root)
    done = uninstall(root)
    assert (done.exit_code, done.output) == (0, "nothing to remove\n")
    target = tune(root, "own.service")
    assert uninstall(root).output == f"removed {target}\n"
    assert snapshot(root) == before


@pytest.mark.parametrize(
    ("code", "manifest", "goes"), [(0, False, True), (0, True, True), (2, False, True), (2, True, False)]
)
def test_the_package_always_asks_and_only_an_installation_can_hold_it_back(
    tmp_path: Path, code: int, manifest: bool, goes: bool
) -> None:
    """Its script, with other folders for /opt/omniwatch and /var/lib, and a systemctl that only says what it is asked."""
    home = tmp_path / "opt/omniwatch"
    grow(tmp_path, f"opt/omniwatch/bin/omniwatch: #!/bin/sh\\necho omniwatch $*\\nexit {code}")
    grow(tmp_path, "bin/systemctl: #!/bin/sh\\necho systemctl $*")
    for name in (home / "bin/omniwatch", tmp_path / "bin/systemctl"):
        name.chmod(0o755)
    if manifest:
        grow(tmp_path, f"{MANIFEST}: {{}}")
    (tmp_path / "var/lib").mkdir(parents=True, exist_ok=True)
    script = (data.root() / "deploy/packaging/prerm").read_text().replace("/opt/omniwatch", str(home))
    script = script.replace("/var/lib", f"{tmp_path}/var/lib")
    done = subprocess.run(
        ["sh", "-c", script, "prerm", "remove"],
        env={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "omniwatch uninstall" in done.stdout
    assert (done.returncode == 0) is goes
    assert ("systemctl disable omniwatch.service" in done.stdout) is goes
