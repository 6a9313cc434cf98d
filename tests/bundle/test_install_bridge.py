"""The bridge to chat robots on a device: its unit comes with the first robot of the settings, and goes with the last."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from helpers.installation import interpreter
from helpers.trees import grow
from omniwatch.cli import main

pytestmark = pytest.mark.slow

CONFIG = "etc/omniwatch/omniwatch.yaml"
UNIT = "etc/systemd/system/omniwatch-notify.service"
WANTS = "etc/systemd/system/multi-user.target.wants/omniwatch-notify.service"
ROBOT = "notify: {robots: [{kind: feishu, url_file: /etc/omniwatch/secrets/feishu}]}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A device's file tree with an interpreter in it."""
    interpreter(tmp_path)
    return tmp_path


def install(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["install", "--root", str(root), *arguments])


def uninstall(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["uninstall", "--root", str(root), *arguments])


@pytest.mark.parametrize("arguments", [[], ["--profile", "orin"]], ids=["alone", "with a server"])
def test_the_bridge_is_installed_where_the_settings_name_a_robot_and_goes_with_it(
    root: Path, arguments: list[str]
) -> None:
    before = sorted(root.rglob("*"))
    assert install(root, *arguments).exit_code == 0
    assert not (root / UNIT).exists()
    (root / CONFIG).write_text(ROBOT)
    told = install(root, *arguments)
    assert told.exit_code == 0, told.output
    assert f"wrote {root / UNIT}" in told.output
    assert "ExecStart=/opt/omniwatch/bin/omniwatch notify " in (root / UNIT).read_text()
    assert (root / WANTS).resolve() == root / UNIT
    assert install(root, *arguments).output == "nothing to change\n"
    (root / CONFIG).write_text("{}")
    assert f"removed {root / UNIT}" in install(root, *arguments).output
    assert not (root / UNIT).exists()
    assert not (root / WANTS).is_symlink()
    (root / CONFIG).write_text(ROBOT)
    install(root, *arguments)
    assert uninstall(root, "--purge", "--yes").exit_code == 0
    assert sorted(root.rglob("*")) == before


def test_on_a_packaged_device_only_the_bridge_is_added(root: Path) -> None:
    grow(root, f"var/lib/dpkg/info/omniwatch.list: /opt/omniwatch\n{CONFIG}: {ROBOT}")
    assert install(root).exit_code == 0
    assert (root / UNIT).exists()
    assert not (root / "etc/systemd/system/omniwatch.service").exists()
    (root / CONFIG).write_text("{}")
    assert "the package omniwatch has installed the sidecar" in install(root).stderr
