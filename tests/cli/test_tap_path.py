"""`omniwatch tap-path`: a place for a server's PYTHONPATH, with the tap and nothing beside it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from helpers import imports
from helpers.installation import device, install, site_of
from omniwatch.cli import main


def tap_path(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["tap-path", *arguments])


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    done = tap_path("--copy", str(tmp_path / "tap"))
    assert (done.exit_code, done.output) == (0, f"{tmp_path / 'tap'}\n")
    return tmp_path / "tap"


@pytest.mark.parametrize("module", ["tap", "resume"])
def test_a_server_imports_the_copy_with_nothing_else_than_what_vllm_brings(
    copy: Path, tmp_path: Path, module: str
) -> None:
    (tmp_path / "vllm").mkdir()
    for package in ("msgspec", "yaml"):
        found = importlib.util.find_spec(package)
        assert found is not None
        (tmp_path / "vllm" / package).symlink_to(Path(str(found.origin)).parent)
    script = f"import sys; sys.path[:0] = {[str(copy), str(tmp_path / 'vllm')]!r}; import omniwatch.{module}; print(omniwatch.__file__)"
    # -S: no site-packages. -I: nothing of this environment.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.stderr, done.stdout) == ("", f"{copy / 'omniwatch/__init__.py'}\n")


def test_it_has_nothing_of_the_desk(copy: Path) -> None:
    assert {path.name for path in copy.iterdir()} == {"omniwatch"}
    there = {path.name for path in (copy / "omniwatch").iterdir()}
    assert {"tap", "resume"} <= there
    assert not there & {"desk", "client", "_data", "__pycache__"}


def test_one_that_is_the_same_stays(copy: Path) -> None:
    before = (copy / "omniwatch").stat().st_ino
    assert tap_path("--copy", str(copy)).exit_code == 0
    assert (copy / "omniwatch").stat().st_ino == before


@pytest.mark.parametrize("change", ["changed", "added", "gone", "link"])
def test_another_one_is_replaced(copy: Path, change: str) -> None:
    package = copy / "omniwatch"
    if change == "changed":
        (package / "tap/chat.py").write_text("raise SystemExit")
    elif change == "added":
        (package / "tap/more.py").write_text("")
    elif change == "gone":
        (package / "events.py").unlink()
    else:
        package.rename(copy.parent / "elsewhere")
        package.symlink_to(copy.parent / "elsewhere")
    assert tap_path("--copy", str(copy)).exit_code == 0
    assert not package.is_symlink()
    assert (package / "tap/chat.py").read_bytes() == (imports.PACKAGE / "tap/chat.py").read_bytes()
    assert (package / "events.py").exists()
    assert not (package / "tap/more.py").exists()
    assert {path.name for path in copy.iterdir()} == {"omniwatch"}


def test_what_a_killed_one_left_goes(copy: Path) -> None:
    (copy / ".omniwatch.new/new").mkdir(parents=True)
    (copy / "omniwatch/events.py").unlink()
    assert tap_path("--copy", str(copy)).exit_code == 0
    assert {path.name for path in copy.iterdir()} == {"omniwatch"}


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = tap_path("--copy", str(tmp_path / "file/tap"))
    assert done.exit_code == 2
    assert done.output == f"Error: {tmp_path / 'file/tap'}: Not a directory\n"


def test_an_environment_with_other_packages_beside_has_none(tmp_path: Path) -> None:
    done = tap_path()
    assert done.exit_code == 2
    assert "`tap-path --copy DIR`" in done.output


def test_an_installed_program_says_its_own(tmp_path: Path) -> None:
    root = device(tmp_path)
    assert install(root).exit_code == 0
    script = (
        f"import sys; sys.path.insert(0, {str(site_of(root))!r}); from pathlib import Path; "
        f"from omniwatch.bundle import tap_copy; print(tap_copy.here(Path({str(root / 'opt/omniwatch/venv')!r})))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{root / 'opt/omniwatch/tap'}\n"
