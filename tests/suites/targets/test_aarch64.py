"""What every board is: this clone on Debian 12 for arm64, its programs run by qemu. Needs root, qemu-user-static and binfmt_misc.

What it computes is compared with what this machine does, digit by digit.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.paths import CLONE
from suites.system.machine import copy_of, inside, run
from suites.targets import distributions

BINFMT = Path("/proc/sys/fs/binfmt_misc")
HANDLER = Path("/usr/lib/binfmt.d/qemu-aarch64.conf")
"""Of Debian's package qemu-user-static; systemd would read it at the next start."""
CLONED = "/srv/omniwatch"
OMNIWATCH = f"{CLONED}/.venv/bin/omniwatch"
KERNEL = ("tests/tap/test_inet_diag.py", "tests/tap/test_arrival.py", "tests/host", "tests/sources")
"""The tests that read the kernel's structures and files from recorded bytes."""
RECORDING = "overload.jsonl"


@pytest.fixture(scope="module")
def by_qemu() -> Iterator[None]:
    """This machine runs programs for arm64 while the tests last."""
    mounted = (BINFMT / "register").exists()
    if not mounted:
        run("mount", "-t", "binfmt_misc", "binfmt_misc", str(BINFMT))
    handler = BINFMT / "qemu-aarch64"
    known = handler.exists()
    if not known:
        (line,) = (one for one in HANDLER.read_text(encoding="utf-8").splitlines() if one.startswith(":"))
        (BINFMT / "register").write_text(line, encoding="utf-8")
    yield
    if not known:
        handler.write_text("-1", encoding="utf-8")
    if not mounted:
        run("umount", str(BINFMT))


@pytest.fixture(scope="module")
def board(by_qemu: None) -> Iterator[Path]:
    """A tree with this clone and every pinned package in it, each of which came as a wheel."""
    try:
        bare = distributions.compiler_tree(distributions.ARM64)
    except distributions.NotReachedError as error:
        pytest.skip(f"not run: the archive is not reached: {error}")
    with copy_of(bare, bare.name) as tree:
        run("git", "clone", "--quiet", str(CLONE), f"{tree}{CLONED}")
        make = ["env", "PIP_ONLY_BINARY=:all:", "make", "-C", CLONED]
        inside(tree, *make, "PYTHON=/usr/bin/python3", ".venv/ready", network=True)
        yield tree


@pytest.fixture(scope="module")
def recording(board: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording that is also in the board's /srv."""
    path = tmp_path_factory.mktemp("recording") / RECORDING
    scenario = ["simulate", "--scenario", "overload", "--speed", "max", "--start-time", "1760000000"]
    path.write_text(run(sys.executable, "-m", "omniwatch", *scenario), encoding="utf-8")
    (board / "srv" / RECORDING).write_bytes(path.read_bytes())
    return path


def test_it_is_another_machine_than_this(board: Path) -> None:
    assert inside(board, "uname", "-m") == "aarch64\n"


def test_structures_of_the_kernel_are_read(board: Path) -> None:
    said = inside(board, "sh", "-c", f"cd {CLONED} && .venv/bin/pytest -m 'not programs' {' '.join(KERNEL)}")
    assert re.search(r"^\d+ passed", said, re.MULTILINE), said[-2000:]


@pytest.mark.parametrize("how", [[], ["--metrics"]], ids=["turns", "metrics"])
def test_replay_says_the_same_to_the_digit(board: Path, recording: Path, how: list[str]) -> None:
    words = ["replay", "--config.file", "/dev/null", *how]
    here = run(sys.executable, "-m", "omniwatch", *words, str(recording))
    there = inside(board, OMNIWATCH, *words, f"/srv/{RECORDING}")
    assert len(there.splitlines()) > 5
    assert _but_for_the_place(there) == _but_for_the_place(here)


def _but_for_the_place(text: str) -> list[str]:
    """Without the lines that name the file, or this Python and when it looked."""
    of_the_place = ("omniwatch_build_info{", "omniwatch_config_last_reload_success_timestamp_seconds ")
    return [line for line in text.splitlines() if RECORDING not in line and not line.startswith(of_the_place)]


def test_the_sidecar_counts_the_same_to_the_digit(board: Path, recording: Path) -> None:
    script = "tests/suites/targets/serving.py"
    here = run(
        sys.executable, str(CLONE / script), str(recording), str(Path(sys.executable).with_name("omniwatch"))
    )
    there = inside(board, f"{CLONED}/.venv/bin/python", f"{CLONED}/{script}", f"/srv/{RECORDING}", OMNIWATCH)
    assert "omni_codec_drift_abs_seconds_sum" in here
    assert there == here


def test_the_cpp_client_is_compiled_and_is_the_python_client(board: Path) -> None:
    tests = ["tests/client/test_cpp.py", "tests/client/test_opus_cpp.py"]
    chosen = "vectors or answers_are_read or no_answer_is_refused or no_opus or compiles"
    inside_tests = f"cd {CLONED} && .venv/bin/pytest --timeout=1800 {' '.join(tests)} -k '{chosen}'"
    said = inside(board, "sh", "-c", inside_tests)
    assert re.search(r"^\d+ passed", said, re.MULTILINE), said[-2000:]


def test_an_image_is_installed_by_a_program_of_its_own_architecture(board: Path) -> None:
    with copy_of(board, f"{board.name}-image") as image:
        install = [OMNIWATCH, "install", "--root", "/image"]
        inside(board, *install, binds={image: "/image"})
        assert inside(board, *install, binds={image: "/image"}) == "nothing to change\n"
        assert "omniwatch" in inside(image, "/usr/local/bin/omniwatch", "--version")


@pytest.mark.timeout(7200)
def test_make_quick_passes(board: Path) -> None:
    said = inside(board, "make", "-C", CLONED, "quick", network=True)
    assert re.search(r"^\d+ passed.* in ", said, re.MULTILINE), said[-2000:]
