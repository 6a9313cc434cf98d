"""A device's file tree to install into, and the commands that do."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from click.testing import CliRunner, Result

from helpers.trees import grow
from omniwatch.bundle import wiring
from omniwatch.bundle.interpreter import VERSION
from omniwatch.cli import main

CONFIG = "etc/omniwatch/omniwatch.yaml"
LEFT = "etc/omniwatch/left.json"
UNIT = "etc/systemd/system/omniwatch.service"
SERVER_UNIT = "etc/systemd/system/qwen3-omni.service"
MANIFEST = "opt/omniwatch/manifest.json"


def interpreter(root: Path) -> Path:
    """What stands for the system's interpreter; returns its path."""
    path = grow(root, f"usr/bin/python{VERSION}: stands for an interpreter") / f"usr/bin/python{VERSION}"
    path.chmod(0o755)
    return path


def device(root: Path, memory_kb: int | None = 62841200) -> Path:
    """An interpreter, a user's own things, and what the kernel says of the memory."""
    interpreter(root)
    grow(root, "etc/systemd/system/own.service: [Service]\\nExecStart=/bin/true")
    if memory_kb is not None:
        grow(root, f"proc/meminfo: MemTotal:       {memory_kb} kB")
    return root


def packaged(root: Path) -> Path:
    """Have the package manager know of the package."""
    return grow(root, "var/lib/dpkg/info/omniwatch.list: /opt/omniwatch")


def debians_servers(root: Path) -> Path:
    """Have Debian's Prometheus and Alertmanager there, as dpkg leaves them."""
    status = ""
    for server in wiring.SERVERS:
        unit = f"[Service]\\nUser=prometheus\\nExecStart=/usr/bin/{server.package} $ARGS"
        grow(root, f"usr/lib/systemd/system/{server.unit}: {unit}")
        grow(root, f'{str(server.config)[1:]}: # Debian\'s own\n{str(server.defaults)[1:]}: ARGS=""')
        sums = "".join(
            f" {path} {hashlib.md5((root / str(path)[1:]).read_bytes(), usedforsecurity=False).hexdigest()}\n"
            for path in (server.config, server.defaults)
        )
        status += (
            f"Package: {server.package}\nStatus: install ok installed\nConffiles:\n{sums}Description: x\n\n"
        )
    (root / "var/lib/dpkg").mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text(f"Package: other\nStatus: install ok installed\n\n{status}")
    return root


def snapshot(root: Path) -> dict[str, str]:
    """Every path below, with what it holds."""
    return {
        str(path.relative_to(root)): f"-> {path.readlink()}"
        if path.is_symlink()
        else "folder"
        if path.is_dir()
        else path.read_bytes().hex()
        for path in sorted(root.rglob("*"))
        if "__pycache__" not in path.parts
    }


def install(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["install", "--root", str(root), *arguments])


def uninstall(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["uninstall", "--root", str(root), *arguments])


def status(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["status", "--root", str(root), *arguments])


def site_of(root: Path) -> Path:
    """The folder of packages that an installation runs from."""
    return next((root / "opt/omniwatch/venv/lib").glob("python*/site-packages"))


def run_from(site: Path, *arguments: str, beside: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command by the program in one folder of packages, and with those of another."""
    folders = [str(site), *([str(beside)] if beside else [])]
    code = (
        "import sys; sys.path[:] = [p for p in sys.path if 'site-packages' not in p and p]; "
        f"sys.path[:0] = {folders!r}; from omniwatch.cli import main; "
        f"main({list(arguments)!r}, prog_name='omniwatch')"
    )
    # Compiled once for all runs, and elsewhere: the folder's files are judged.
    compiled = f"pycache_prefix={_compiled().name}"
    return subprocess.run(
        [sys.executable, "-X", compiled, "-S", "-I", "-c", code], capture_output=True, text=True, check=False
    )


@cache
def _compiled() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="omniwatch-compiled-")
