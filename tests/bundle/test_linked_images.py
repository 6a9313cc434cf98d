"""Images whose links lead out of them: nothing there is read, written or removed; and no way to the disk but below the root."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from helpers import disk_calls
from helpers.imports import PACKAGE
from helpers.installation import install, snapshot, uninstall
from helpers.killed_installations import NEW, modules
from helpers.linked_images import Scene, image
from helpers.odd_files import KINDS
from helpers.trees import grow
from omniwatch.bundle import check

SHARE = 8
"""Components that are tried here, by a seed; `make adversary` tries every one."""
COMMANDS = ("install", "uninstall", "status", "check", "tune", "render")
DATA = "the program's own data folders"
OWN_COPY = "a copy of its own in a temporary folder"
NAMED_ROOT = "the root, which the user names"
EXCEPTIONS: dict[str, dict[str, set[str]]] = {
    "bundle/alertmanager.py": {
        "what the settings of the running device name": {
            "user_file.read",
            "user_file.read_text",
            "context.load_cert_chain",
        }
    },
    "bundle/catalogue.py": {DATA: {"((root or data.root()) / FILE).read_text"}},
    "bundle/check.py": {
        NAMED_ROOT: {"directory.iterdir"},
        OWN_COPY: {
            *(
                "Path(copy).glob",
                "Path(directory, 'queries.yaml').write_text",
                "directory.glob",
                "job[2].stat",
                "os.path.normpath",
            ),
            *(
                "path.read_bytes",
                "path.read_text",
                "user_yaml.load",
                "target.parent.mkdir",
                "target.write_bytes",
            ),
            *("target.write_text", "tempfile.TemporaryDirectory"),
        },
    },
    "bundle/data.py": {DATA: {"(packaged / FOLDERS[0]).is_dir"}},
    "bundle/features.py": {
        "what the tools of the running device are asked": {"asked.write_text", "tempfile.TemporaryDirectory"}
    },
    "bundle/install.py": {"the installed program of the running device": {"compileall.compile_dir"}},
    "bundle/installed_files.py": {"the lock, which is on the root": {"os.close", "os.open"}},
    "bundle/profiles.py": {
        DATA: {"(_root(root) / FOLDER).glob", "path.read_text"},
        "the program that a user asks for its flags": {"os.access", "python.exists"},
    },
    "bundle/tap_copy.py": {
        "the running program, and a volume that a user names, in no image": {
            *("(folder / NAME).exists", "(folder / NAME).samefile", "directory.mkdir", "shutil.copytree"),
            *(
                "shutil.ignore_patterns",
                "shutil.rmtree",
                "target.exists",
                "target.is_symlink",
                "target.rename",
            ),
            *("theirs.is_dir", "theirs.is_symlink", "(made / 'new').rename"),
        }
    },
    "bundle/program_files.py": {
        "the running program, which is what is installed": {
            *("(root / folder).rglob", "Path(str(file.locate())).is_file", "package.rglob"),
            *("path.is_file", "path.read_bytes"),
        }
    },
    "bundle/running.py": {"a match of a pattern": {"token.group"}},
    "bundle/render.py": {DATA: {"(root / name).read_text", "(root / profiles.FOLDER).is_dir", "root.glob"}},
    "bundle/systemctl.py": {
        "whether the running device has systemd": {"Path('/run/systemd/system').is_dir"},
        OWN_COPY: {
            *(
                "copy.chmod",
                "copy.exists",
                "copy.parent.mkdir",
                "copy.read_bytes",
                "copy.stat",
                "copy.write_bytes",
            ),
            *("path.write_text", "tempfile.TemporaryDirectory"),
        },
    },
    "tune/change.py": {
        "the kernel's files of a running unit": {"Path(path).exists", "Path(path).write_text", "read_text"}
    },
    "tune/congestion.py": {"the running kernel's own value": {"path.write_text"}},
    "tune/sample.py": {"the kernel's files of a running unit": {"names", "read_text"}},
    "cli/install.py": {NAMED_ROOT: {"root.is_dir"}},
    "cli/status.py": {NAMED_ROOT: {"root.is_dir"}},
    "cli/check.py": {
        "the program that a user asks for its flags": {"program.exists"},
        "a folder of objects, which is no image": {"(directory / KUSTOMIZATION).is_file"},
    },
}
"""Other ways to the disk than `system/rooted.py`, by the reason why no link of an image is on them."""


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="root alone makes accounts, in an image too")


@AS_ROOT
@pytest.mark.slow
def test_a_link_at_any_component_leads_nowhere_else(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    seed = random.randrange(1 << 30)
    dice = random.Random(seed)
    found = [scene.play(component, dice) for component in dice.sample(scene.components, SHARE)]
    assert not any(found), f"seed {seed}: {found}"


def test_there_is_no_other_way_to_the_disk() -> None:
    modules = [path for room in ("bundle", "tune") for path in sorted((PACKAGE / room).glob("*.py"))]
    modules += [PACKAGE / f"cli/{name}.py" for name in COMMANDS]
    found = {
        str(path.relative_to(PACKAGE)): disk_calls.of(path.read_text(encoding="utf-8")) for path in modules
    }
    assert {name: calls for name, calls in found.items() if calls} == {
        name: set().union(*reasons.values()) for name, reasons in EXCEPTIONS.items()
    }


@pytest.mark.parametrize(
    "call",
    [
        *("open('x')", "path.read_text()", "path.open('rb')", "os.replace(a, b)", "path.replace(other)"),
        *(
            "shutil.rmtree(path)",
            "path.exists()",
            "atomic_write.replace(path, b'')",
            "(root / 'a').is_symlink()",
        ),
    ],
)
def test_another_way_to_the_disk_is_found(call: str) -> None:
    assert disk_calls.of(f"def f():\n    return [{call}]")


def test_what_is_checked_is_read_below_its_folder(tmp_path: Path) -> None:
    """By the tools, too: Prometheus' own would follow the link."""
    grow(
        tmp_path, "outside/streaming.rules.yaml: groups: [{name: secret, rules: [{alert: Secret, expr: up}]}]"
    )
    grow(tmp_path, "bundle/alerts/own.rules.yaml: groups: []")
    link = tmp_path / "bundle/alerts/streaming.rules.yaml"
    link.symlink_to(tmp_path / "outside/streaming.rules.yaml")
    with pytest.raises(FileNotFoundError) as raised:
        check.check(tmp_path / "bundle", lambda name: None)
    assert raised.value.filename == str(link)
    (tmp_path / "bundle/alerts").rename(tmp_path / "bundle/moved")
    (tmp_path / "bundle/alerts").symlink_to(tmp_path / "outside")
    (result,) = check.check(tmp_path / "bundle", lambda name: None)
    assert result.detail == "no alerts/*.rules.yaml here"


@pytest.mark.programs
@AS_ROOT
def test_the_account_is_made_and_removed_in_the_image_alone(tmp_path: Path) -> None:
    """By programs that know of no root of ours."""
    accounts = "etc/passwd: root:x:0:0::/:/bin/sh\netc/group: root:x:0:\netc/shadow: root:*:1::::::"
    root, outside = image(tmp_path / "root"), grow(tmp_path / "outside", accounts)
    (root / "etc/shadow").write_text("root:*:1::::::\n")
    (root / "etc/shadow").chmod(0o640)
    before = snapshot(outside)
    (root / str(outside)[1:]).mkdir(parents=True)
    (root / "etc").rename(root / str(outside / "etc")[1:])
    (root / "etc").symlink_to(outside / "etc")
    inside = root / str(outside / "etc")[1:]
    with modules(NEW):
        assert install(root).exit_code == 0
        assert "\nomniwatch:" in (inside / "passwd").read_text()
        assert (inside / "shadow").stat().st_mode & 0o777 == 0o640
        done = uninstall(root, "--purge", "--yes")
        assert done.exit_code == 0, done.output
    assert (inside / "passwd").read_text() == "root:x:0:0::/:/bin/sh\n"
    assert snapshot(outside) == before


@AS_ROOT
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["etc/passwd", "etc/shadow"])
def test_accounts_that_are_no_file_are_one_line(tmp_path: Path, name: str, kind: str) -> None:
    root = image(tmp_path)
    (root / name).unlink(missing_ok=True)
    KINDS[kind](root / name)
    # What a link leads to is not in the image: then there is no such file.
    expected = (0, 0) if (root / name).is_symlink() else (2, 1)
    with modules(NEW):
        done = install(root)
    assert (done.exit_code, len(done.stderr.splitlines())) == expected, done.stderr
    assert done.exit_code == 0 or f"{root / name}: " in done.stderr
