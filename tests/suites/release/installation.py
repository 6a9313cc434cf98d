"""Install ansible-core and ansible-lint into an environment of their own, once: 60 MB.

As a program it installs: `python tests/suites/release/installation.py`. OMNIWATCH_ANSIBLE_DIR says where, by default
~/.cache/omniwatch/ansible. The interpreter is the system's, so that a copy runs on a machine made of the same distribution.
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
SYSTEM_PYTHON = Path("/usr/bin/python3")
STAMP, LOCK, LOG = "requirements.sha256", "lock", "installation.log"


def directory() -> Path:
    """Where it is, or will be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("OMNIWATCH_ANSIBLE_DIR") or cache / "omniwatch" / "ansible").absolute()


def install(into: Path) -> Path:
    """Install what is not installed yet; return the environment's folder of programs."""
    into.mkdir(parents=True, exist_ok=True)
    venv = into / "venv"
    wanted = hashlib.sha256(str(SYSTEM_PYTHON.resolve()).encode() + PINS.read_bytes()).hexdigest()
    with (into / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = into / STAMP
        if not (stamp.exists() and stamp.read_text() == wanted):
            stamp.unlink(missing_ok=True)
            shutil.rmtree(venv, ignore_errors=True)
            sys.stderr.write(f"ansible: installing into {into}\n")
            pip = ["-m", "pip", "install", "--require-hashes", "--only-binary=:all:", "--progress-bar=off"]
            with (into / LOG).open("wb") as log:
                for command in (
                    [str(SYSTEM_PYTHON), "-m", "venv", str(venv)],
                    [str(venv / "bin/python"), *pip, "--requirement", str(PINS)],
                ):
                    if subprocess.run(command, stdout=log, stderr=log, check=False).returncode:
                        raise SystemExit(f"ansible: {' '.join(command)} failed; see {into / LOG}")
            stamp.write_text(wanted)
    return venv / "bin"


if __name__ == "__main__":
    install(directory())
