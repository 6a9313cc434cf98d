"""The Debian package's prerm, killed before and after every command that it runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from helpers.installation import snapshot
from helpers.paths import CLONE
from helpers.trees import grow

PRERM = CLONE / "deploy" / "packaging" / "prerm"
_STEP = """#!/bin/sh
# Counts itself, and kills the script that runs it: before its work at an odd number, after it at an even one.
die() { n=$(($(cat ROOT/count) + 1)); echo $n > ROOT/count; [ $n -ne "$KILL" ] || kill -KILL $PPID $$; }
die
WORK
code=$?
die
exit $code
"""
_WORK = {
    "bin/systemctl": """case "$1" in
    is-enabled) [ -e ROOT/enabled ];;
    disable) rm -f ROOT/enabled;;
    stop) rm -f ROOT/running;;
esac""",
    "bin/touch": '/usr/bin/touch "$@"',
    "bin/find": '/usr/bin/find "$@"',
    "opt/omniwatch/bin/omniwatch": "rm -f ROOT/opt/omniwatch/manifest.json ROOT/opt/omniwatch/added",
}


class Removal:
    """`dpkg --remove` as far as prerm goes, in a tree of its own: each play begins with a copy."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        whole = self._tree("whole")
        self._remove(whole, 0)
        self.writes = int((whole / "count").read_text())
        self._wanted = _comparable(whole)

    def play(self, number: int) -> str:
        """Kill it at a step, from 1 to `writes`, and run it again. Returns what is wrong then, "" for nothing."""
        root = self._tree("killed")
        if self._remove(root, number) == 0:
            return "it was not killed"
        (root / "count").write_text("0")
        if code := self._remove(root, 0):
            return f"the second run ended with {code}"
        found = _comparable(root)
        return "" if found == self._wanted else f"{sorted(found.items() ^ self._wanted.items())} differs"

    def _tree(self, name: str) -> Path:
        root = self._folder / name
        shutil.rmtree(root, ignore_errors=True)
        grow(root, "run/systemd/system/\nvar/lib/\nenabled: \nrunning: \nopt/omniwatch/manifest.json: {}")
        grow(root, "opt/omniwatch/added: by install\nopt/omniwatch/lib/__pycache__/a.pyc: compiled")
        for file, work in _WORK.items():
            path = root / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_STEP.replace("WORK", work).replace("ROOT", str(root)))
            path.chmod(0o755)
        text = PRERM.read_text()
        for place in ("/opt/omniwatch", "/run/systemd", "/var/lib/omniwatch"):
            text = text.replace(place, f"{root}{place}")
        (root / "prerm").write_text(text)
        (root / "count").write_text("0")
        return root

    def _remove(self, root: Path, kill: int) -> int:
        environ = {"PATH": f"{root}/bin:{os.environ['PATH']}", "KILL": str(kill)}
        return subprocess.run(
            ["sh", root / "prerm", "remove"], env=environ, check=False, timeout=60
        ).returncode


def _comparable(root: Path) -> dict[str, str]:
    """What prerm leaves: without the stand-ins, and without where they stand."""
    kept = snapshot(root)
    return {name: what for name, what in kept.items() if name not in ("count", "prerm", *_WORK)}
