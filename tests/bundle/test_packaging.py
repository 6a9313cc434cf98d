"""The package's scripts in the order dpkg calls them, on a file tree of their own, with a systemctl that only remembers."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path, PurePosixPath

import msgspec
import pytest
import yaml

from helpers.trees import grow
from omniwatch.bundle import data, render, uninstall
from omniwatch.settings import Settings, Site

SYSTEMCTL = """#!/bin/sh
state="$(dirname "$0")/enabled"
case "$1" in
is-enabled) [ -e "$state" ]; exit ;;
enable) touch "$state" ;;
disable) rm -f "$state" ;;
esac
echo "systemctl $*"
"""


@pytest.fixture(params=["running", "not running"])
def root(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A machine on which systemd runs, and a file tree on which it does not."""
    grow(
        tmp_path, "opt/omniwatch/bin/omniwatch: #!/bin/sh\nopt/omniwatch/venv/bin/python: #!/bin/sh\nvar/lib/"
    )
    for name in ("systemd-sysusers", "systemd-tmpfiles", "userdel"):
        grow(tmp_path, f"bin/{name}: #!/bin/sh")
    grow(tmp_path, "bin/getent: #!/bin/sh\\nexit 2")
    (tmp_path / "bin/systemctl").write_text(SYSTEMCTL)
    for path in (*(tmp_path / "bin").iterdir(), *(tmp_path / "opt/omniwatch").glob("*/bin/*")):
        path.chmod(0o755)
    (tmp_path / "opt/omniwatch/bin/omniwatch").chmod(0o755)
    if request.param == "running":
        grow(tmp_path, "run/systemd/system/")
    return tmp_path


def script(root: Path, name: str, *arguments: str) -> str:
    """Run one of the package's scripts, its paths below `root`; what it had systemctl do."""
    text = (data.root() / "deploy/packaging" / name).read_text()
    text = re.sub(r"(?<![\w.])/(opt|var|etc|run)(?![\w.])", rf"{root}/\1", text)
    done = subprocess.run(
        ["sh", "-c", text, name, *arguments],
        env={**os.environ, "PATH": f"{root / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def enabled(root: Path) -> bool:
    return (root / "bin/enabled").exists()


def remove(root: Path) -> None:
    script(root, "prerm", "remove")
    script(root, "postrm", "remove")


def test_a_package_that_comes_back_enables_its_sidecar(root: Path) -> None:
    """dpkg then names the old version, as at an upgrade."""
    script(root, "postinst", "configure", "")
    assert enabled(root)
    remove(root)
    assert not enabled(root)
    told = script(root, "postinst", "configure", "0.1.0")
    assert enabled(root)
    assert ("systemctl enable --now omniwatch.service" in told) is (root / "run/systemd/system").is_dir()


@pytest.mark.parametrize("between", [[], ["remove"]], ids=["upgraded", "removed and installed"])
def test_a_sidecar_that_was_disabled_stays_so(root: Path, between: list[str]) -> None:
    script(root, "postinst", "configure", "")
    remove(root)
    script(root, "postinst", "configure", "0.1.0")
    (root / "bin/enabled").unlink()
    if between:
        remove(root)
    script(root, "postinst", "configure", "0.1.0")
    assert not enabled(root)


def test_a_purge_leaves_nothing_but_the_model_servers_own(root: Path) -> None:
    script(root, "postinst", "configure", "")
    grow(root, "etc/omniwatch/omniwatch.yaml: {}")
    for state in uninstall.STATE:
        grow(root, f"{str(state).lstrip('/')}/kept: by a unit")
    before = {path for path in (root / "var/lib").rglob("*") if "qwen3-omni" in str(path)}
    remove(root)
    script(root, "postrm", "purge")
    left = set((root / "var/lib").rglob("*"))
    assert left == before | {root / "var/lib/private"}
    assert not (root / "etc/omniwatch").exists()


def test_removal_keeps_opt(root: Path) -> None:
    script(root, "postinst", "configure", "")
    script(root, "prerm", "remove")
    shutil.rmtree(root / "opt")  # as dpkg does with a directory of the package that is empty then
    script(root, "postrm", "remove")
    assert stat.S_IMODE((root / "opt").stat().st_mode) == 0o755


def test_the_desks_compiled_files_go_with_it_and_no_others(root: Path) -> None:
    site = root / "opt/omniwatch/site"
    for name in ("omniwatch/desk/a", "omniwatch/b", "omniwatch/desk/cli/c", "typing_extensions"):
        path = Path(name)
        grow(site, f"{path}.py: text\n{path.parent}/__pycache__/{path.name}.cpython-311.pyc: compiled")
    ours = [site / "omniwatch/desk/a.py", site / "omniwatch/desk/cli/c.py", site / "typing_extensions.py"]
    (root / "list").write_text("".join(f"{path}\n" for path in [site, site / "omniwatch", *ours]))
    (root / "bin/dpkg").write_text(f"#!/bin/sh\ncat {root / 'list'}\n")
    (root / "bin/dpkg").chmod(0o755)
    script(root, "desk-prerm", "remove")
    assert [str(path.relative_to(site)) for path in site.rglob("*.pyc")] == [
        "omniwatch/__pycache__/b.cpython-311.pyc"
    ]
    assert len([*site.rglob("__pycache__")]) == 1


def test_both_packages_are_of_one_version() -> None:
    folder = data.root() / "deploy/packaging"
    device, desk = (
        yaml.safe_load((folder / f"{name}.yaml").read_text()) for name in ("omniwatch", "omniwatch-desk")
    )
    assert desk["depends"] == [f"omniwatch (= {desk['version']})"]
    assert [device[name] for name in ("version", "arch")] == [desk[name] for name in ("version", "arch")]


def test_the_packages_unit_leaves_the_address_to_the_settings_it_reads() -> None:
    """It is rendered before anybody has any."""
    path = PurePosixPath("deploy/systemd/omniwatch.service")
    config = msgspec.structs.replace(Settings(), site=Site(exporter="0.0.0.0:9999"))
    assert render.render(config)[path] == render.render(Settings())[path]
