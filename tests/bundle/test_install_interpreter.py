"""Which interpreter an installation takes: one that the sidecar's unit can run, and that its compiled parts are made for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helpers.installation import install, interpreter
from helpers.trees import grow
from omniwatch.bundle.interpreter import VERSION, find

NAME = f"python{VERSION}"
SYSTEMS = f"/usr/bin/{NAME}"
OTHERS_ELF = b"\x7fELF\x01\x02" + bytes(12) + b"\x12\x34"
"""32 bits, and no machine there is."""


def running(root: Path, monkeypatch: pytest.MonkeyPatch, prefix: str) -> Path:
    """Have the program run with an interpreter of this prefix."""
    monkeypatch.setattr(sys, "base_prefix", prefix)
    path = grow(root, f"{prefix[1:]}/bin/{NAME}: stands for another") / prefix[1:] / "bin" / NAME
    path.chmod(0o755)
    return path


def refused(root: Path, says: str) -> None:
    done = install(root)
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
    assert says in done.stderr
    assert not (root / "opt/omniwatch").exists()


def test_the_running_one_where_the_unit_can_run_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running(root, monkeypatch, "/opt/python")
    assert str(find(root)) == f"/opt/python/bin/{NAME}"
    assert install(root).exit_code == 0
    assert str((root / "opt/omniwatch/venv/bin/python").readlink()) == f"/opt/python/bin/{NAME}"


@pytest.mark.parametrize("prefix", ["/root/.pyenv/versions/x", "/home/me/py", "/run/user/0/py", "/tmp/py"])
def test_what_the_unit_does_not_see_is_refused_without_the_systems(
    root: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    running(root, monkeypatch, prefix)
    assert str(find(root)) == SYSTEMS
    (root / SYSTEMS[1:]).unlink()
    refused(root, f"{prefix}/bin/{NAME}: the unit of the sidecar sees nothing below /")


def test_a_link_to_what_the_unit_does_not_see_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far = running(root, monkeypatch, "/root/py")
    (root / SYSTEMS[1:]).unlink()
    (root / SYSTEMS[1:]).symlink_to(f"/root/py/bin/{NAME}")
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    refused(root, f"{SYSTEMS}: the unit of the sidecar sees nothing below /root")
    near = root / "opt/py" / NAME
    near.parent.mkdir(parents=True)
    far.rename(near)
    (root / SYSTEMS[1:]).unlink()
    (root / SYSTEMS[1:]).symlink_to(f"../../opt/py/{NAME}")
    assert str(find(root)) == SYSTEMS


def test_a_folder_that_is_a_link_leads_where_it_leads_within_the_tree(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(root, monkeypatch, "/home/me/py")
    (root / SYSTEMS[1:]).unlink()
    monkeypatch.setattr(sys, "base_prefix", "/opt/py")
    grow(root, "opt/own: mine")
    (root / "opt/py").symlink_to("/home/me/py")
    refused(root, f"/bin/{NAME}: the unit of the sidecar sees nothing below /home")
    (root / "opt/py").unlink()
    (root / "home/me/py").rename(root / "opt/other")
    (root / "opt/py").symlink_to("../opt/other")
    assert str(find(root)) == f"/opt/py/bin/{NAME}"


@pytest.mark.parametrize(
    ("closed", "says"),
    [("opt/python", "only some users may enter /opt/python"), (f"opt/python/bin/{NAME}", "may run it")],
)
def test_what_others_may_not_enter_or_run_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch, closed: str, says: str
) -> None:
    running(root, monkeypatch, "/opt/python")
    interpreter(root).unlink()
    (root / closed).chmod(0o750)
    refused(root, says)
    (root / closed).chmod(0o755)
    assert install(root).exit_code == 0


def test_another_architecture_is_refused_and_this_ones_is_not(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    (root / SYSTEMS[1:]).write_bytes(OTHERS_ELF)
    refused(root, f"{SYSTEMS}: it is of another architecture")
    (root / SYSTEMS[1:]).write_bytes(Path(sys.executable).read_bytes()[:64])
    assert install(root).exit_code == 0
