"""Install other projects' realtime clients, each into an environment of its own, once: 950 MB.

As a program it installs: `python tests/suites/clients/installation.py`. OMNIWATCH_CLIENTS_DIR says where, by default
~/.cache/omniwatch/clients.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

PINS = {"pipecat": "pipecat-ai[openai,websocket]==1.14.0", "livekit": "livekit-plugins-openai==1.8.9"}
"""What is tried; docs/vllm-omni.md names the versions."""
STAMP, LOCK, LOG = "pin", "lock", "installation.log"
OLDEST_PYTHON = (3, 11)


def directory() -> Path:
    """Where they are, or will be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("OMNIWATCH_CLIENTS_DIR") or cache / "omniwatch" / "clients").absolute()


def install(into: Path, name: str) -> Path:
    """Install a client that is not installed yet; return its environment's interpreter."""
    if sys.version_info < OLDEST_PYTHON:
        raise SystemExit("the clients need Python 3.11 or newer")
    into.mkdir(parents=True, exist_ok=True)
    venv, stamp = into / name, into / f"{name}.{STAMP}"
    wanted = f"{sys.version_info[:2]} {PINS[name]}"
    with (into / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (stamp.exists() and stamp.read_text() == wanted):
            stamp.unlink(missing_ok=True)
            shutil.rmtree(venv, ignore_errors=True)
            sys.stderr.write(f"{name}: installing into {venv}\n")
            pip = ["-m", "pip", "install", "--only-binary=:all:", "--progress-bar=off", PINS[name]]
            with (into / LOG).open("ab") as log:
                for command in ([sys.executable, "-m", "venv", str(venv)], [str(venv / "bin/python"), *pip]):
                    if subprocess.run(command, stdout=log, stderr=log, check=False).returncode:
                        raise SystemExit(f"{name}: {' '.join(command)} failed; see {into / LOG}")
            stamp.write_text(wanted)
    return venv / "bin/python"


if __name__ == "__main__":
    for each in PINS:
        install(directory(), each)
