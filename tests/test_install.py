"""Installation into a file tree: whole or not at all, the same twice, config kept, and gone without a trace."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from omniwatch import __version__, settings
from omniwatch.bundle import payload
from omniwatch.cli.install import command as install_command
from omniwatch.cli.status import command as status_command
from omniwatch.cli.uninstall import command as uninstall_command
from omniwatch.tune import dropin
from omniwatch.tune.model import Limit
from trees import grow

CONFIG = "etc/omniwatch/omniwatch.yaml"
UNIT = "etc/systemd/system/omniwatch.service"
SERVER_UNIT = "etc/systemd/system/qwen3-omni.service"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A device's file tree: an interpreter, and a user's own things."""
    grow(tmp_path, f"{str(payload.interpreter()).lstrip('/')}: stands for an interpreter")
    grow(tmp_path, "etc/systemd/system/own.service: [Service]\\nExecStart=/bin/true")
    grow(tmp_path, "proc/meminfo: MemTotal:       62841200 kB")
    return tmp_path


def snapshot(root: Path) -> dict[str, str]:
    """Every path below, with what it holds."""
    return {
        str(path.relative_to(root)): f"-> {path.readlink()}"
        if path.is_symlink()
        else "folder"
        if path.is_dir()
        else path.read_bytes().hex()
        for path in sorted(root.rglob("*"))
        if "__pycache__" not in path.parts
    }


def install(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(install_command, ["--root", str(root), *arguments])


def uninstall(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(uninstall_command, ["--root", str(root), *arguments])


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
        "var",
        "var/lib",
        "var/lib/omniwatch",
        "var/lib/omniwatch/checkpoint",
    }


def test_a_second_installation_changes_nothing(root: Path) -> None:
    install(root, "--profile", "orin")
    before = {path: path.lstat().st_mtime_ns for path in root.rglob("*")}
    again = install(root, "--profile", "orin")
    assert again.output == "nothing to change\n"
    assert {path: path.lstat().st_mtime_ns for path in root.rglob("*")} == before
    assert install(root, "--profile", "orin", "--diff").exit_code == 0


def test_what_was_installed_runs_by_itself(root: Path) -> None:
    """With nothing on the path but the installed environment."""
    install(root)
    site = next((root / "opt/omniwatch/venv/lib").glob("python*/site-packages"))
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


def test_the_users_config_is_kept_by_an_upgrade(root: Path) -> None:
    install(root)
    own = "site:\n  exporter: 0.0.0.0:9842\n"
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
    assert "--web.listen-address=0.0.0.0:9842" in (root / UNIT).read_text(), (
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


def test_a_first_config_is_valid_and_says_what_was_chosen(root: Path) -> None:
    install(root, "--profile", "3b-int8-moe4")
    config = settings.load(root / CONFIG)
    assert config.server.profile == "3b-int8-moe4"
    assert config.server.device_memory_gb == pytest.approx(64.3), "as measured"


@pytest.mark.parametrize(
    ("content", "arguments", "says"),
    [
        ("alerts: {drift_page_ms: sixty}", [], 'alerts.drift_page_ms: expected a number > 0, got "sixty"'),
        (None, ["--profile", "int8"], 'no profile "int8"; there are 3b-int8-moe4, int4, orin'),
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


def test_a_changed_unit_is_noticed(root: Path) -> None:
    install(root)
    with (root / UNIT).open("a") as unit:
        unit.write("# mine\n")
    (root / "opt/omniwatch/bin/omniwatch").unlink()
    told = CliRunner().invoke(status_command, ["--root", str(root)])
    assert told.exit_code == 1
    assert "/etc/systemd/system/omniwatch.service was changed" in told.output
    assert "/opt/omniwatch/bin/omniwatch is missing" in told.output
    assert install(root).exit_code == 2


def test_status_of_a_good_installation(root: Path) -> None:
    install(root)
    told = CliRunner().invoke(status_command, ["--root", str(root), "--json"])
    assert told.exit_code == 0
    assert {finding["what"]: finding["ok"] for finding in json.loads(told.output)} == {
        "files": True,
        "configuration": True,
    }


def test_a_full_disk_leaves_nothing_half_written(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot(root)
    real, count = Path.write_bytes, 0

    def full(path: Path, content: bytes) -> int:
        nonlocal count
        count += 1
        if count > 100:
            raise OSError(28, "No space left on device", str(path))
        return real(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    done = install(root)
    assert done.exit_code == 2
    assert "No space left on device" in done.stderr
    assert snapshot(root) == before


def test_the_drop_in_of_tune_goes_with_the_rest(root: Path) -> None:
    before = snapshot(root)
    install(root, "--profile", "orin")
    dropin.apply(
        "qwen3-omni.service", dropin.text("qwen3-omni.service", Limit(None), 900, None), lambda: None, root
    )
    uninstall(root, "--purge")
    assert snapshot(root) == before


def test_the_users_own_drop_ins_stay(root: Path) -> None:
    install(root, "--profile", "orin")
    grow(root, f"{SERVER_UNIT}.d/10-own.conf: [Service]\\nNice=1")
    dropin.apply(
        "qwen3-omni.service", dropin.text("qwen3-omni.service", Limit(None), 900, None), lambda: None, root
    )
    uninstall(root, "--purge")
    assert [path.name for path in (root / f"{SERVER_UNIT}.d").iterdir()] == ["10-own.conf"]


def test_uninstalling_nothing_is_an_error(root: Path) -> None:
    done = uninstall(root)
    assert done.exit_code == 2
    assert "omniwatch install has put nothing here" in done.stderr


def test_a_tree_without_the_interpreter_is_refused(tmp_path: Path) -> None:
    done = install(tmp_path)
    assert done.exit_code == 2
    assert "no such interpreter" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_installed_program_installs_itself_again(root: Path) -> None:
    """An upgrade's `omniwatch` is the installed one: it must find every file of its own."""
    install(root)
    site = next((root / "opt/omniwatch/venv/lib").glob("python*/site-packages"))
    before = snapshot(root)
    code = (
        "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p and p]; "
        f"sys.path.insert(0, {str(site)!r}); from omniwatch.cli import main; "
        f"main(['install', '--root', {str(root)!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "nothing to change\n"), done.stderr
    assert snapshot(root) == before
