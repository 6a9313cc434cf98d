"""Install what drives Debian's Chromium into a folder of its own, once: 170 MB, half a minute.

As a program it installs: `python tests/suites/browser/installation.py`. OMNIWATCH_BROWSER_DIR says where, by default
~/.cache/omniwatch/browser. Playwright's own browsers are not fetched.
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


def directory() -> Path:
    """Where it is, or will be."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(os.environ.get("OMNIWATCH_BROWSER_DIR") or cache / "omniwatch" / "browser").absolute()


def install(into: Path) -> Path:
    """Install what is not installed yet; return the folder to import from."""
    into.mkdir(parents=True, exist_ok=True)
    packages = into / "packages"
    wanted = hashlib.sha256(f"{sys.version_info[:2]}".encode() + PINS.read_bytes()).hexdigest()
    with (into / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = into / STAMP
        if not (stamp.exists() and stamp.read_text() == wanted):
            stamp.unlink(missing_ok=True)
            shutil.rmtree(packages, ignore_errors=True)
            sys.stderr.write(f"browser: installing into {into}\n")
            # Every package is named there.
            pip = ["-m", "pip", "install", "--no-deps", "--only-binary=:all:", "--progress-bar=off"]
            command = [sys.executable, *pip, "--target", str(packages), "--requirement", str(PINS)]
            with (into / LOG).open("wb") as log:
                if subprocess.run(command, stdout=log, stderr=log, check=False).returncode:
                    raise SystemExit(f"browser: {' '.join(command)} failed; see {into / LOG}")
            stamp.write_text(wanted)
    return packages


if __name__ == "__main__":
    install(directory())
