"""deploy/compose by podman-compose, in an environment and a network of its own, with images of Debian's packages. Needs root."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from helpers.paths import CLONE
from suites.container.engine import BASE, Engine

FILE = CLONE / "deploy/compose/compose.yaml"
PINNED = ("podman-compose==1.6.0",)
SERVERS = {"prometheus": "prometheus", "alertmanager": "prometheus-alertmanager"}
"""What runs in place of the published images: the program of a Debian package."""
TEXTS = Path("/usr/share/prometheus/alertmanager")
"""What Debian's Alertmanager reads at its start."""
NAMES = ("omniwatch", "prometheus", "alertmanager")
"""Services by whose names others reach them. Debian 12's podman has no name service for containers."""


class Compose(NamedTuple):
    """podman-compose, and what it is given."""

    program: Path
    engine: Engine
    environment: dict[str, str]
    inside: tuple[str, ...] = ()
    """A command that runs another in the composition's network."""

    def run(self, *arguments: str, files: tuple[Path, ...] = (FILE,)) -> subprocess.CompletedProcess[str]:
        """Run podman-compose. What fails is raised with its words."""
        named = [word for file in files for word in ("--file", str(file))]
        done = subprocess.run(
            [*self.inside, str(self.program), *named, *arguments],
            env={**self.engine.environment, **self.environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done


def installed(directory: Path) -> Path:
    """Install podman-compose into a directory, and return the program."""
    subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
    subprocess.run([str(directory / "bin/pip"), "install", "--quiet", *PINNED], check=True)
    return directory / "bin/podman-compose"


def make_images(engine: Engine, directory: Path) -> dict[str, str]:
    """Make an image of each server over the base, and return what names it to the file."""
    names = {}
    shutil.copytree(TEXTS, directory / "texts")
    for name, program in SERVERS.items():
        (directory / "Containerfile").write_text(
            f'FROM {BASE}\nCOPY {program} /bin/{name}\nCOPY texts {TEXTS}\nENTRYPOINT ["/bin/{name}"]\n'
        )
        (directory / program).write_bytes(Path("/usr/bin", program).read_bytes())
        (directory / program).chmod(0o755)
        subprocess.run(
            ["buildah", "build", "--isolation=chroot", "--quiet", f"--tag=localhost/{name}", str(directory)],
            env=engine.environment,
            check=True,
            capture_output=True,
        )
        names[f"{name.upper()}_IMAGE"] = f"localhost/{name}"
    return names


def on_one_network(path: Path, services: list[str]) -> Path:
    """Write an override that puts services onto the network of podman itself, where their names lead to loopback."""
    hosts = [f"{name}:127.0.0.1" for name in NAMES]
    changed = {name: {"network_mode": "host", "extra_hosts": hosts} for name in services}
    path.write_text(json.dumps({"services": changed}))
    return path


@contextmanager
def network() -> Iterator[tuple[str, ...]]:
    """Make a network with nothing but loopback; yield the command that runs another in it."""
    with subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep infinity"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "up\n"
            yield ("nsenter", f"--net=/proc/{holder.pid}/ns/net")
        finally:
            holder.terminate()
