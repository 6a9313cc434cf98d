"""Installations and removals that are killed midway, two at once, and lists of files that lie."""

from __future__ import annotations

import errno
import json
import os
import random
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from helpers.installation import CONFIG, MANIFEST, UNIT, device, install, snapshot, status, uninstall
from helpers.killed_installations import KINDS, NEW, Scene, modules
from helpers.trees import grow
from omniwatch.bundle import installed_files, systemctl
from omniwatch.system import rooted
from omniwatch.tune import congestion

SHARE = 4
"""Writes of each kind that are tried here, by a seed; `make adversary` tries every one."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_second_run_ends_what_was_killed_at_a_write(tmp_path: Path, kind: str) -> None:
    scene = Scene(kind, tmp_path)
    seed = random.randrange(1 << 30)
    numbers = random.Random(seed).sample(range(1, scene.writes), SHARE - 1)
    found = {number: scene.play(number) for number in (*numbers, scene.writes)}
    assert not any(found.values()), f"seed {seed}: {found}"


def test_a_second_one_at_the_same_time_is_refused_in_a_line(root: Path) -> None:
    install(root)
    before = snapshot(root)
    with installed_files.alone(root):
        for done in (install(root, "--profile", "orin"), uninstall(root, "--purge")):
            assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1)
            assert "another `omniwatch install` or `uninstall` is at work here" in done.stderr
        assert uninstall(root, "--dry-run").exit_code == 0
    assert snapshot(root) == before
    assert uninstall(root).exit_code == 0


@pytest.mark.slow
def test_status_says_that_an_installation_has_not_ended(root: Path) -> None:
    install(root)
    listed = json.loads((root / MANIFEST).read_text())
    listed["intended"] = {f"/{UNIT}": "of a newer version"}
    (root / MANIFEST).write_text(json.dumps(listed))
    told = json.loads(status(root, "--json").stdout)[0]
    assert (told["ok"], told["says"]) == (False, "an installation has not ended: run it again")
    assert install(root).exit_code == 0
    assert json.loads(status(root, "--json").stdout)[0]["ok"] is True


@pytest.mark.slow
def test_what_a_killed_one_wrote_is_restarted_by_the_next(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(root)
    listed = json.loads((root / MANIFEST).read_text())
    listed["intended"] = {f"/{UNIT}": listed["files"].pop(f"/{UNIT}")}
    (root / MANIFEST).write_text(json.dumps(listed))
    restarts: list[list[str]] = []

    def arrive(root: Path, *, restarted: list[str], **_: object) -> list[str]:
        restarts.append(list(restarted))
        return []

    monkeypatch.setattr(systemctl, "arrive", arrive)
    install(root)
    install(root)
    assert restarts == [["omniwatch.service"], []]


def _entries(field: str, *names: str) -> dict[str, object]:
    return {"version": "1", "files": {}} | {field: dict.fromkeys(names, "0")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("listed", "says"),
    [
        (
            _entries("files", "/home/user/notes.service"),
            "'/home/user/notes.service' is none of an installation's",
        ),
        (_entries("files", "/opt/omniwatch/../../etc/passwd"), "is none of an installation's"),
        (_entries("intended", "/etc/passwd"), "'/etc/passwd' is none of an installation's"),
        (_entries("files", "opt/omniwatch/a"), "is none of an installation's"),
        (_entries("files", "//opt/omniwatch/a"), "is none of an installation's"),
        (_entries("files", "/opt/omniwatch"), "is none of an installation's"),
        (_entries("files", "/opt/omniwatch/a\x1b[2J"), "is none of an installation's"),
        (_entries("files", "/opt/omniwatch/elsewhere/passwd"), "leads through a link"),
        (_entries("files", *(f"/opt/omniwatch/{number}" for number in range(1_000_000))), "longer than"),
        ({"version": "1", "files": {}, "configs": ["/etc/passwd"]}, "is none of an installation's"),
        ({"version": "1", "files": {}, "directories": ["/home/user"]}, "is none of an installation's"),
        (
            {"version": "1", "files": {}, "directories": ["/opt/omniwatch/elsewhere"]},
            "leads through a link",
        ),
        ("[" * 100_000, "; `omniwatch install --force`"),
    ],
    ids=str.split(
        "outside above intended relative slashes folder escape link million configs directories linked deep"
    ),
)
def test_a_list_that_names_what_is_not_ours_removes_nothing(
    root: Path, listed: dict[str, object] | str, says: str
) -> None:
    grow(
        root,
        "home/user/notes.service: mine\nopt/omniwatch/elsewhere -> /etc\netc/passwd: root:x:0:0::/:/bin/sh",
    )
    (root / MANIFEST).write_text(listed if isinstance(listed, str) else json.dumps(listed))
    before = snapshot(root)
    for done in (uninstall(root), uninstall(root, "--purge"), install(root)):
        assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1), done.output[-2000:]
        assert says in done.stderr
        assert len(done.stderr) < 1000
    assert json.loads(status(root, "--json").stdout)[0]["ok"] is False
    assert snapshot(root) == before


def test_a_list_that_is_no_file_is_not_waited_for(root: Path) -> None:
    (root / MANIFEST).parent.mkdir(parents=True)
    os.mkfifo(root / MANIFEST)
    done = uninstall(root)
    assert (done.exit_code, done.stderr) == (2, f"Error: {root / MANIFEST}: not a regular file\n")


def test_what_a_killed_one_was_to_replace_is_not_ours(root: Path) -> None:
    """With --force it had said so, and had not come to it."""
    grow(root, f"{UNIT}: [Service]\n{CONFIG}: {{}}")
    before = (root / UNIT).read_bytes()
    intended = {f"/{UNIT}": "0"}
    grow(root, f"{MANIFEST}: {json.dumps({'version': '1', 'files': {}, 'intended': intended})}")
    assert uninstall(root, "--purge", "--yes").exit_code == 0
    assert (root / UNIT).read_bytes() == before


ACCOUNTS = {
    "passwd": "root:x:0:0::/:/bin/sh\n",
    "group": "root:x:0:\n",
    "shadow": "root:*:1::::::\n",
    "gshadow": "root:*::\n",
    "login.defs": "USERGROUPS_ENAB yes\n",
}


def accounts(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((root / "etc").iterdir()) if path.is_file()}


@pytest.mark.programs
@pytest.mark.parametrize("number", range(len(ACCOUNTS) - 1))
def test_an_account_that_was_half_made_or_half_removed_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Its files are replaced one by one: a disk that is full, or a kill, comes between any two."""
    root, whole = device(tmp_path / "root"), device(tmp_path / "whole")
    for tree in (root, whole):
        for name, text in ACCOUNTS.items():
            (tree / "etc" / name).write_text(text)
    replace = rooted.replace
    left = [number]

    def fails(tree: Path, path: PurePosixPath, content: bytes, **how: Any) -> None:
        if tree == root and path.name in ACCOUNTS:
            left[0] -= 1
            if left[0] == -1:
                (root / f"etc/.{path.name}.12").write_text("staged when it was killed")
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
        replace(tree, path, content, **how)

    monkeypatch.setattr(rooted, "replace", fails)
    with modules(NEW):
        assert install(whole).exit_code == 0
        assert install(root).exit_code == 2
        assert install(root).exit_code == 0
        assert accounts(root) == accounts(whole)
        left[0] = number
        assert uninstall(whole, "--purge", "--yes").exit_code == 0
        assert uninstall(root, "--purge", "--yes").exit_code == 2
        assert uninstall(root, "--purge", "--yes").exit_code in (0, 2)
    assert accounts(root) == accounts(whole)


def test_a_removal_ends_the_revert_of_a_drop_in_that_was_killed(root: Path) -> None:
    """What was before is back, and the copy of it is still there."""
    install(root)
    places = ["etc/systemd/system/own.service.d/50-cpu.conf", str(congestion.SYSCTL)[1:]]
    for place in places:
        grow(root, f"{place}: another's\n{place}.before-omniwatch: another's")
    assert uninstall(root).exit_code == 0
    assert [[path.name for path in (root / place).parent.iterdir()] for place in places] == [
        [Path(place).name] for place in places
    ]


def test_what_is_owed_leaves_nothing_staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemctl, "running", lambda root: True)
    grow(tmp_path, "run/.omniwatch.install.owed.12: staged\nrun/.other.12: of another")
    systemctl.owe(tmp_path, restarted=["omniwatch.service"], reloaded=())
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        ".other.12",
        "omniwatch.install.owed",
    ]


def test_what_was_left_staged_goes_and_what_only_looks_like_it_stays(tmp_path: Path) -> None:
    root = device(tmp_path)
    install(root)
    grow(root, "etc/omniwatch/.mine.123: not staged\netc/systemd/system/.omniwatch.service.123: staged")
    assert install(root).output == "nothing to change\n"
    assert (root / "etc/omniwatch/.mine.123").exists()
    assert not (root / "etc/systemd/system/.omniwatch.service.123").exists()
