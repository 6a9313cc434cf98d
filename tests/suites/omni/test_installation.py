"""When the installation is made, made anew and left alone. The work itself is done for the other tests here."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from suites.omni.installation import InstallationError, Say, directory, install


class Work:
    """Fills the directory as told, and counts how often."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails
        self.done = 0

    def __call__(self, into: Path, say: Say) -> None:
        assert not (into / "venv").exists()
        self.done += 1
        (into / "venv").mkdir()
        if self.fails:
            raise InstallationError("no network")


def quiet(line: str) -> None:
    pass


def test_a_complete_one_is_used_again(tmp_path: Path) -> None:
    work = Work()
    install(tmp_path / "omni", quiet, work)
    install(tmp_path / "omni", quiet, work)
    assert work.done == 1


def test_a_half_made_one_is_made_anew(tmp_path: Path) -> None:
    with pytest.raises(InstallationError, match="no network"):
        install(tmp_path, quiet, Work(fails=True))
    work = Work()
    install(tmp_path, quiet, work)
    assert work.done == 1


def test_another_recipe_means_another_installation(tmp_path: Path) -> None:
    install(tmp_path, quiet, Work())
    (tmp_path / "recipe.sha256").write_text("of another recipe")
    work = Work()
    install(tmp_path, quiet, work)
    assert work.done == 1


def test_what_is_somebody_elses_stays(tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    with pytest.raises(InstallationError, match="OMNIWATCH_OMNI_DIR"):
        install(tmp_path, quiet, Work())
    assert [path.name for path in tmp_path.iterdir()] == ["venv"]


def test_two_at_once_do_it_once(tmp_path: Path) -> None:
    waiting = threading.Event()

    def tell(line: str) -> None:
        if "waiting" in line:
            waiting.set()

    work = Work()
    second = threading.Thread(target=install, args=(tmp_path, tell, work))

    def slow(into: Path, say: Say) -> None:
        second.start()
        assert waiting.wait(20)
        work(into, say)

    install(tmp_path, quiet, slow)
    second.join(20)
    assert work.done == 1


def test_where_it_goes() -> None:
    assert directory({"OMNIWATCH_OMNI_DIR": "/srv/omni"}) == Path("/srv/omni")
    assert directory({"XDG_CACHE_HOME": "/srv/cache"}) == Path("/srv/cache/omniwatch/omni")
    assert directory({}) == Path.home() / ".cache/omniwatch/omni"
