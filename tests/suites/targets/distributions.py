"""The distributions that a device may have beside this machine's own, as bare trees made by debootstrap. Needs root.

A tree is made once, with the distribution's own updates, and kept in OMNIWATCH_TEST_ROOTS.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from helpers.paths import CLONE
from suites.system.machine import ROOTS, inside, mirror, run

BARE = "systemd,systemd-sysv,dbus,udev,python3,python3-venv,ca-certificates,make,git"
FRESH = "python3,make,git,ca-certificates,sudo"
"""What README asks of a machine, and what every one has."""
SERVERS = "prometheus prometheus-alertmanager victoria-metrics"
COMPILER = "python3-venv g++ libcurl4-openssl-dev libopus-dev"
UBUNTU_KEYS = CLONE / "tests/data/ubuntu-archive-keyring.gpg"
"""Of Debian's package ubuntu-archive-keyring."""
UNREACHED = re.compile(
    r"Failed getting release file|Couldn't download|Couldn't find these debs|Temporary failure|Could not resolve"
)


class NotReachedError(Exception):
    """The archive of a distribution gave no answer."""


class Distribution(NamedTuple):
    """A release by its codename; `script` is what debootstrap makes it by, and `archive` is "" where that script names one.

    Another architecture's programs run by binfmt_misc.
    """

    codename: str
    name: str
    script: str
    archive: str = ""
    keys: Path | None = None
    components: str = "main"
    architecture: str = "amd64"


JAMMY = Distribution("jammy", "Ubuntu 22.04", "gutsy", keys=UBUNTU_KEYS, components="main,universe")
# debootstrap makes every Ubuntu by this script, by that name or another.
NOBLE = Distribution("noble", "Ubuntu 24.04", "gutsy", keys=UBUNTU_KEYS, components="main,universe")
TRIXIE = Distribution("trixie", "Debian 13", "sid", mirror())
BOOKWORM = Distribution("bookworm", "Debian 12", "sid", mirror())
ARM64 = Distribution("bookworm", "Debian 12 for arm64", "sid", mirror(), architecture="arm64")
"""What every board is."""
ALL = (JAMMY, NOBLE, TRIXIE)
"""Those that no other suite boots."""
PROMISED = (*ALL, BOOKWORM)
"""Those that README's two commands are for."""


def device_tree(distribution: Distribution) -> Path:
    """Return a tree that boots, with Prometheus, Alertmanager and VictoriaMetrics, and what Omniwatch needs from pip in /srv/venv.

    Raises NotReachedError.
    """
    lines = importlib.metadata.requires("omniwatch") or []
    needed = [line.partition(";")[0] for line in lines if "extra ==" not in line or "extra == 'desk'" in line]

    def fill(unfinished: Path) -> None:
        _update(distribution, unfinished, SERVERS)
        inside(unfinished, "python3", "-m", "venv", "/srv/venv")
        inside(unfinished, "/srv/venv/bin/pip", "install", "-q", *needed, network=True)

    return _kept(distribution, BARE, [SERVERS, *needed], fill)


def fresh_tree(distribution: Distribution) -> Path:
    """Return a tree with what README asks of a machine, and nothing else. Raises NotReachedError."""
    return _kept(distribution, FRESH, [], lambda unfinished: _update(distribution, unfinished))


def compiler_tree(distribution: Distribution) -> Path:
    """Return a fresh tree with a compiler and what the C++ client links. Raises NotReachedError."""
    return _kept(
        distribution, FRESH, [COMPILER], lambda unfinished: _update(distribution, unfinished, COMPILER)
    )


def _kept(
    distribution: Distribution, packages: str, further: list[str], fill: Callable[[Path], None]
) -> Path:
    """The tree of these packages, made where it is not there yet."""
    made_of = " ".join(
        [packages, *further, *([] if distribution.architecture == "amd64" else [distribution.architecture])]
    )
    found = ROOTS / f"{distribution.codename}-{zlib.crc32(made_of.encode()):08x}"
    if found.is_dir():
        return found
    unfinished = found.with_name(f".{found.name}.{os.getpid()}")
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    try:
        _debootstrap(distribution, packages, unfinished)
        fill(unfinished)
        unfinished.rename(found)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return found


def _debootstrap(distribution: Distribution, packages: str, unfinished: Path) -> None:
    keys = [f"--keyring={distribution.keys}"] if distribution.keys else []
    command = [
        "debootstrap",
        "--variant=minbase",
        f"--arch={distribution.architecture}",
        f"--components={distribution.components}",
        f"--include={packages}",
        *keys,
        distribution.codename,
        str(unfinished),
        distribution.archive,
        distribution.script,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if done.returncode and UNREACHED.search(said):
        raise NotReachedError(said.strip().splitlines()[-1])
    assert done.returncode == 0, said[-4000:]


def _update(distribution: Distribution, unfinished: Path, packages: str = "") -> None:
    """Bring a tree to the distribution's newest state, and put further packages in, none of which is started."""
    # One that leads into a running system's state is of no use here.
    resolv = unfinished / "etc/resolv.conf"
    resolv.unlink(missing_ok=True)
    shutil.copy("/etc/resolv.conf", resolv)
    (unfinished / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n", encoding="utf-8")
    sources = unfinished / "etc/apt/sources.list"
    if distribution.keys == UBUNTU_KEYS:
        (plain,) = re.findall(r"^deb (\S+) \S+ (.+)$", sources.read_text(encoding="utf-8"), re.MULTILINE)
        sources.write_text(
            "".join(
                f"deb {plain[0]} {distribution.codename}{of} {plain[1]}\n"
                for of in ("", "-updates", "-security")
            ),
            encoding="utf-8",
        )
    steps = f"apt-get -q update && apt-get -q -y dist-upgrade && apt-get -q -y --no-install-recommends install {packages} && apt-get clean"
    # Without this machine's certificates: an update of theirs is to be written.
    command = ["systemd-nspawn", "-q", "-D", str(unfinished), "--register=no", "--keep-unit", "--pipe"]
    run(*command, "env", "DEBIAN_FRONTEND=noninteractive", "sh", "-c", steps)
