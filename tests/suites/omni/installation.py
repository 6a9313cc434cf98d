"""A real vLLM-Omni for the CPU with a tiny model, installed from `recipe/` once and kept: 4 GB, two minutes.

As a program it installs: `python tests/suites/omni/installation.py`. OMNIWATCH_OMNI_DIR says where, by default
~/.cache/omniwatch/omni. An installation that is complete and of the present recipe is used as it is; any other is made
anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

RECIPE = Path(__file__).parent / "recipe"
DISK_BYTES = 6 * 2**30
BEAT_S = 10.0
"""How often a step that takes its time says that it goes on."""
STAMP, LOCK, LOG = "recipe.sha256", "lock", "installation.log"
PARTS = ("venv", "model", "recipe")
TORCHVISION = """

if not _has_ops():
    # Built for CUDA, beside a torch that is not: its meta registrations insist on these two operators.
    _operators = torch.library.Library("torchvision", "DEF")
    _operators.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _operators.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
Say = Callable[[str], None]
Make = Callable[[Path, Say], None]


class InstallationError(RuntimeError):
    """It cannot be installed; the message says why and where to read more."""


def directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Where it is, or will be."""
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(environ.get("OMNIWATCH_OMNI_DIR") or cache / "omniwatch" / "omni").absolute()


def fingerprint() -> str:
    """What an installation is made of: another one means to make it anew."""
    digest = hashlib.sha256(f"{sys.version_info[:2]} {platform.machine()}".encode())
    for path in sorted([*RECIPE.rglob("*"), Path(__file__)]):
        if path.is_file() and "__pycache__" not in path.parts:
            content = path.read_bytes()
            digest.update(f"\n{path.relative_to(RECIPE.parent)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def install(into: Path, say: Say, make: Make | None = None) -> None:
    """Let `make`, by default the whole of the work, fill the directory, unless that is done. Raises InstallationError."""
    with _alone(into, say):
        stamp = into / STAMP
        wanted = fingerprint()
        if stamp.exists() and stamp.read_text() == wanted:
            return
        began = time.monotonic()
        stamp.unlink(missing_ok=True)
        for part in PARTS:
            shutil.rmtree(into / part, ignore_errors=True)
        free = shutil.disk_usage(into).free
        if free < DISK_BYTES:
            raise InstallationError(f"{into}: {free / 2**30:.1f} GB free, {DISK_BYTES / 2**30:.0f} GB needed")
        say(f"vLLM-Omni: installing into {into}")
        (make or make_all)(into, say)
        stamp.write_text(wanted)
        say(f"vLLM-Omni: installed in {time.monotonic() - began:.0f} s")


@contextmanager
def _alone(into: Path, say: Say) -> Iterator[None]:
    """Hold the directory, which must be new, empty or one of ours: what is in the way of the parts is removed."""
    into.mkdir(parents=True, exist_ok=True)
    if not (into / LOCK).exists() and any(into.iterdir()):
        raise InstallationError(
            f"{into}: holds something else; name an empty directory in OMNIWATCH_OMNI_DIR"
        )
    with (into / LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"vLLM-Omni: waiting for another installation into {into}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_all(into: Path, say: Say) -> None:
    """Do the work. Raises InstallationError."""
    _Steps(into, say).all()


class _Steps:
    """What is done, one after another, each with its output in the log."""

    def __init__(self, into: Path, say: Say) -> None:
        self._into = into
        self._say = say
        self._python = into / "venv" / "bin" / "python"
        self._log = into / LOG
        self._log.write_bytes(b"")

    def all(self) -> None:
        pins = RECIPE / "requirements.txt"
        torch = next(line for line in pins.read_text().splitlines() if line.startswith("torch=="))
        self._run("an environment", sys.executable, "-m", "venv", str(self._into / "venv"))
        # First and with what it needs: which build there is, for the CPU or for CUDA, is the registry's to say.
        self._pip("torch", "--constraint", str(pins), torch)
        self._pip("vLLM-Omni", "--no-deps", "--requirement", str(pins))
        # The build leaves its traces beside the sources: not in the clone.
        sources = self._into / "recipe"
        shutil.copytree(RECIPE, sources, ignore=shutil.ignore_patterns("__pycache__"))
        own = [str(sources / name) for name in ("vllm_metadata", "cpu_platform")]
        self._pip("a CPU for it", "--no-deps", "--no-build-isolation", *own)
        self._mend()
        self._run("a model", str(self._python), str(RECIPE / "make_model.py"), str(self._into / "model"))

    def _pip(self, what: str, *arguments: str) -> None:
        self._run(what, str(self._python), "-m", "pip", "install", "--progress-bar=off", *arguments)

    def _mend(self) -> None:
        """Let torchvision and torchaudio, where they were built for CUDA, be imported beside a torch for the CPU."""
        (site,) = (self._into / "venv").glob("lib/python3*/site-packages")
        for library in site.glob("torchaudio/lib/*.so"):
            library.unlink()
        with (site / "torchvision" / "extension.py").open("a") as code:
            code.write(TORCHVISION)

    def _run(self, what: str, *command: str) -> None:
        began = time.monotonic()
        with self._log.open("ab") as log, self._beating(what):
            log.write(f"\n$ {' '.join(command)}\n".encode())
            log.flush()
            code = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, check=False
            ).returncode
        if code:
            last = self._log.read_text(errors="replace").strip().splitlines()[-15:]
            raise InstallationError("\n".join([f"{what}: exit {code}; all of it in {self._log}", *last]))
        self._say(f"  {what}: {time.monotonic() - began:.0f} s")

    @contextmanager
    def _beating(self, what: str) -> Iterator[None]:
        done = threading.Event()

        def beat() -> None:
            while not done.wait(BEAT_S):
                lines = self._log.read_text(errors="replace").splitlines()
                self._say(f"  {what}: {lines[-1][:100] if lines else ''}")

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def main() -> None:
    def say(line: str) -> None:
        sys.stderr.write(f"{line}\n")

    try:
        install(directory(), say)
    except (InstallationError, OSError) as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
