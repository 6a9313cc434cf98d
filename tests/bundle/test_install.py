"""Installation into a file tree: whole or not at all, the same twice, config kept, and gone without a trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from click.testing import Result

from helpers.installation import (
    CONFIG,
    MANIFEST,
    SERVER_UNIT,
    UNIT,
    install,
    run_from,
    site_of,
    snapshot,
    status,
    uninstall,
)
from helpers.trees import grow
from omniwatch import __version__
from omniwatch.bundle import profiles, systemctl
from omniwatch.bundle.installed_files import state_of
from omniwatch.system import atomic_write


def test_install_and_purge_leave_the_tree_as_it_was(root: Path) -> None:
    before = snapshot(root)
    done = install(root, "--profile", "orin")
    assert done.exit_code == 0, done.output
    assert {CONFIG, UNIT, SERVER_UNIT, "opt/omniwatch/bin/omniwatch", "usr/local/bin/omniwatch"} <= snapshot(
        root
    ).keys()
    gone = uninstall(root, "--purge")
    assert gone.exit_code == 0, gone.output
    assert snapshot(root) == before


@pytest.mark.slow
def test_a_second_installation_changes_nothing(root: Path) -> None:
    install(root, "--profile", "orin")
    before = {path: path.lstat().st_mtime_ns for path in root.rglob("*")}
    again = install(root, "--profile", "orin")
    assert again.output == "nothing to change\n"
    assert {path: path.lstat().st_mtime_ns for path in root.rglob("*")} == before
    assert install(root, "--profile", "orin", "--diff").exit_code == 0


def test_a_unit_that_systemctl_has_enabled_anew_is_as_installed(root: Path) -> None:
    """It writes the whole path into the link, where `install` writes a relative one. `status` says to do so."""
    install(root, "--profile", "orin")
    links = list((root / "etc/systemd/system/multi-user.target.wants").iterdir())
    assert len(links) == 2
    for link in links:
        link.unlink()
        link.symlink_to(f"/etc/systemd/system/{link.name}")
    assert {one["what"]: one["ok"] for one in json.loads(status(root, "--json").stdout)}["files"]
    assert install(root, "--profile", "orin").output == "nothing to change\n"
    links[0].unlink()
    links[0].symlink_to("/etc/systemd/system/another.service")
    assert "--force replaces it" in install(root, "--profile", "orin").stderr


@pytest.mark.slow
def test_what_was_installed_runs_by_itself(root: Path) -> None:
    """With nothing on the path but the installed environment."""
    install(root)
    site = site_of(root)
    code = (
        "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p and p]; "
        f"sys.path.insert(0, {str(site)!r}); "
        "import omniwatch, msgspec, yaml, jinja2, bcrypt, click, prometheus_client; "
        "from omniwatch.bundle import render; from omniwatch.settings import Settings; "
        "print(len(render.render(Settings())), all('opt/omniwatch' in m.__file__ for m in (omniwatch, msgspec, yaml, click)))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", code], capture_output=True, text=True, check=True
    )
    count, ours = done.stdout.split()
    assert int(count) > 5
    assert ours == "True"


def test_the_tap_is_importable_alone(root: Path) -> None:
    """A model server's PYTHONPATH gets this package and no other."""
    install(root)
    assert [path.name for path in (root / "opt/omniwatch/tap").iterdir()] == ["omniwatch"]
    assert (root / "opt/omniwatch/tap/omniwatch/tap").is_dir()


@pytest.mark.slow
def test_dry_run_and_diff_write_nothing(root: Path) -> None:
    before = snapshot(root)
    told = install(root, "--dry-run", "--profile", "orin")
    assert f"would write {root / UNIT}" in told.output
    shown = install(root, "--diff", "--profile", "orin")
    assert shown.exit_code == 1
    assert f"+++ {root / SERVER_UNIT}" in shown.output
    assert "+WatchdogSec=30" in shown.output
    assert snapshot(root) == before
    install(root)
    installed = snapshot(root)
    assert f"would remove {root / UNIT}" in uninstall(root, "--dry-run").output
    assert snapshot(root) == installed


def test_an_upgrade_leaves_nothing_of_the_version_before(root: Path) -> None:
    install(root)
    fresh = snapshot(root)
    package = (
        next((root / "opt/omniwatch/venv/lib").glob("python*/site-packages")) / "omniwatch-0.0.1.dist-info"
    )
    grow(root, f"{package.relative_to(root)}/METADATA: of an older version")
    kept = json.loads((root / MANIFEST).read_text())
    folder = f"/{package.relative_to(root)}"
    kept["files"][f"{folder}/METADATA"] = state_of(root, PurePosixPath(f"{folder}/METADATA"))
    kept["directories"].append(folder)
    (root / MANIFEST).write_text(json.dumps(kept))
    assert install(root).exit_code == 0
    assert json.loads(status(root, "--json").stdout)[0]["ok"] is True
    assert {name: what for name, what in snapshot(root).items() if name != MANIFEST} == {
        name: what for name, what in fresh.items() if name != MANIFEST
    }


def test_an_image_with_absolute_links_keeps_what_is_installed(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (root / str(outside).lstrip("/")).mkdir(parents=True)
    (root / "real/usr-local").mkdir(parents=True)
    (root / "real/etc").mkdir()
    (root / "opt").symlink_to(outside)
    (root / "usr/local").symlink_to("../../../../../real/etc/../usr-local")
    done = install(root)
    assert done.exit_code == 0, done.output
    assert list(outside.iterdir()) == []
    assert (root / str(outside).lstrip("/") / "omniwatch/manifest.json").is_file()
    assert (root / "real/usr-local/bin/omniwatch").is_symlink()
    assert uninstall(root, "--purge").exit_code == 0
    assert list(outside.iterdir()) == []


@pytest.mark.slow
def test_a_profile_of_a_program_that_is_not_there_is_refused_before_anything_is_written(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(root)
    before = snapshot(root)
    monkeypatch.setattr(systemctl, "running", lambda root: True)
    done = install(root, "--profile", "int4")
    assert done.exit_code == 2
    program = profiles.load("int4").words()[0]
    assert f"profile int4 starts {program}, which is not here" in done.stderr
    assert snapshot(root) == before
    monkeypatch.undo()
    assert f"note: profile int4 starts {program}" in install(root, "--profile", "int4").stderr
    assert (root / SERVER_UNIT).exists()


@pytest.mark.slow
def test_only_its_own_files_restart_the_sidecar(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    restarts: list[list[str]] = []

    def arrive(root: Path, *, restarted: list[str], **_: object) -> list[str]:
        restarts.append(restarted)
        return []

    monkeypatch.setattr(systemctl, "arrive", arrive)
    install(root)
    install(root, "--profile", "orin")
    (root / SERVER_UNIT).unlink()
    install(root, "--profile", "orin")
    (root / UNIT).unlink()
    install(root, "--profile", "orin")
    assert restarts == [["omniwatch.service"], [], [], ["omniwatch.service"]]


def test_links_in_a_circle_are_one_line(root: Path) -> None:
    (root / "opt").symlink_to("srv")
    (root / "srv").symlink_to("opt")
    done = install(root)
    assert done.exit_code == 2
    assert "Too many levels of symbolic links" in done.output
    assert done.output.count("\n") == 1


def test_the_users_config_is_kept_by_an_upgrade(root: Path) -> None:
    install(root)
    own = "sources: ['journal:qwen3-omni.service']\n"
    (root / CONFIG).write_text(own)
    (root / "opt/omniwatch/manifest.json").write_text(
        (root / "opt/omniwatch/manifest.json").read_text().replace(__version__, "0.0.1")
    )
    old = root / "opt/omniwatch/venv/lib/python3.9/gone.py"
    grow(root, f"{old.relative_to(root)}: of an older version")
    kept = json.loads((root / "opt/omniwatch/manifest.json").read_text())
    kept["files"]["/opt/omniwatch/venv/lib/python3.9/gone.py"] = "0"
    (root / "opt/omniwatch/manifest.json").write_text(json.dumps(kept))
    done = install(root)
    assert done.exit_code == 0, done.output
    assert (root / CONFIG).read_text() == own
    assert "SupplementaryGroups=systemd-journal" in (root / UNIT).read_text(), (
        "the new unit follows the user's config"
    )
    assert not old.exists()
    assert json.loads((root / "opt/omniwatch/manifest.json").read_text())["version"] == __version__


def test_an_upgrade_without_a_profile_leaves_the_model_server_alone(root: Path) -> None:
    install(root, "--profile", "orin")
    server = (root / SERVER_UNIT).read_text()
    assert install(root).output == "nothing to change\n"
    assert (root / SERVER_UNIT).read_text() == server
    uninstall(root, "--purge")
    assert not (root / SERVER_UNIT).exists()


@pytest.mark.parametrize(
    ("content", "arguments", "says"),
    [
        (
            "alerts: {drift_page_ms: sixty}",
            [],
            'alerts.drift_page_ms: expected a number >= 0.001, <= 1e+09, got "sixty"',
        ),
        (
            None,
            ["--profile", "int8"],
            'no profile "int8"; there are 3b-int8-moe4, int4, orin, orin-int4, orin-text',
        ),
        (None, ["--profile", "int4", "--device-memory-gb", "32"], "profile int4 does not fit"),
    ],
)
def test_what_does_not_hold_is_said_before_anything_is_written(
    root: Path, content: str | None, arguments: list[str], says: str
) -> None:
    if content is not None:
        grow(root, f"{CONFIG}: {content}")
    before = snapshot(root)
    done = install(root, *arguments)
    assert done.exit_code == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert snapshot(root) == before


def test_another_ones_unit_is_not_overwritten(root: Path) -> None:
    grow(root, f"{SERVER_UNIT}: [Service]\\nExecStart=/my/own/server")
    before = snapshot(root)
    done = install(root, "--profile", "orin")
    assert done.exit_code == 2
    assert f"{root / SERVER_UNIT}: not as omniwatch wrote it; --force replaces it" in done.stderr
    assert snapshot(root) == before
    assert install(root, "--profile", "orin", "--force").exit_code == 0
    assert "/my/own/server" not in (root / SERVER_UNIT).read_text()


@pytest.mark.slow
def test_an_edited_unit_is_refused_and_its_difference_is_shown(root: Path) -> None:
    """Also where it is not text: a diff of it is still printed, and --force replaces it."""
    install(root, "--profile", "orin")
    for path, lines in ((SERVER_UNIT, b"# mine\n"), (UNIT, b"# m\xefne\n")):
        with (root / path).open("ab") as unit:
            unit.write(lines)
    before = snapshot(root)
    refused = install(root, "--profile", "orin")
    assert refused.exit_code == 2
    assert f"{root / SERVER_UNIT}: not as omniwatch wrote it" in refused.stderr
    shown = install(root, "--profile", "orin", "--diff")
    assert shown.exit_code == 1
    assert {f"--- {root / SERVER_UNIT}", "-# mine", "-# m\ufffdne"} <= set(shown.stdout.splitlines())
    assert snapshot(root) == before
    assert install(root, "--profile", "orin", "--force").exit_code == 0
    assert b"mine" not in (root / SERVER_UNIT).read_bytes()


def test_a_damaged_list_of_what_was_installed_is_written_anew_by_force(root: Path) -> None:
    install(root, "--profile", "orin")
    good = (root / MANIFEST).read_bytes()

    def refuses(done: Result) -> None:
        assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
        assert done.stderr.startswith(f"Error: {root / MANIFEST}: ")
        assert done.stderr.endswith(
            "; `omniwatch install --force` with the options of before writes it anew\n"
        )

    for damage in (b'{"version": "\xff", "files": {}}', b"[]", b"{", b""):
        (root / MANIFEST).write_bytes(damage)
        refuses(uninstall(root))
    refuses(install(root))
    assert install(root, "--profile", "orin", "--force").exit_code == 0
    assert json.loads((root / MANIFEST).read_bytes()) == json.loads(good) | {"directories": []}
    assert uninstall(root, "--purge").exit_code == 0
    assert not (root / SERVER_UNIT).exists()


def test_a_full_disk_leaves_nothing_half_written(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot(root)
    """What a write is told does not name the file, unlike what an open is told."""
    real, count, last = atomic_write.put, 0, ""

    def full(name: str, content: bytes, **how: Any) -> None:
        nonlocal count, last
        count += 1
        if count > 100 and not how["link"]:
            last = name.lstrip(".").removesuffix(f".{os.getpid()}")
            raise OSError(28, "No space left on device")
        real(name, content, **how)

    monkeypatch.setattr(atomic_write, "put", full)
    done = install(root)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"Error: {root}/opt/omniwatch/")
    assert done.stderr.endswith(f"/{last}: No space left on device\n")
    assert snapshot(root) == before


def test_an_interruption_leaves_nothing_half_written(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot(root)
    real = atomic_write.put

    def interrupted(name: str, content: bytes, **how: Any) -> None:
        if name.startswith(".omniwatch.service."):
            raise KeyboardInterrupt
        real(name, content, **how)

    monkeypatch.setattr(atomic_write, "put", interrupted)
    assert install(root).exit_code != 0
    assert snapshot(root) == before


def test_a_tree_without_the_interpreter_is_refused(tmp_path: Path) -> None:
    done = install(tmp_path)
    assert done.exit_code == 2
    assert "no such interpreter" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_installed_program_installs_itself_again(root: Path) -> None:
    """An upgrade's `omniwatch` is the installed one: it must find every file of its own."""
    install(root)
    site = site_of(root)
    before = snapshot(root)
    done = run_from(site, "install", "--root", str(root))
    assert (done.returncode, done.stdout) == (0, "nothing to change\n"), done.stderr
    assert snapshot(root) == before
