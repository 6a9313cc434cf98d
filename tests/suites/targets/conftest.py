"""Booted machines of the distributions that a device may have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from suites.system.conftest import wheel
from suites.system.machine import Machine, booted, copy_of, inside, put
from suites.targets import distributions, takers

__all__ = ["wheel"]


@pytest.fixture(scope="module", params=distributions.ALL, ids=lambda one: one.codename)
def bare(request: pytest.FixtureRequest) -> Path:
    """A distribution's tree. Where its archive is not reached, nothing is tried there, and that is said."""
    try:
        return distributions.device_tree(request.param)
    except distributions.NotReachedError as error:
        pytest.skip(f"not run: the archive of {request.param.name} is not reached: {error}")


@pytest.fixture(scope="module")
def machine(bare: Path, wheel: Path) -> Iterator[Machine]:
    """A booted machine on which pip has installed this clone in /srv/venv, with servers that take messages."""
    with copy_of(bare, bare.name) as tree:
        (tree / "srv" / wheel.name).write_bytes(wheel.read_bytes())
        inside(tree, "/srv/venv/bin/pip", "install", "-q", "--no-deps", "--no-index", f"/srv/{wheel.name}")
        authority = trustme.CA()
        certificate = authority.issue_cert(*takers.NAMES)
        (tree / "srv/taker.pem").write_bytes(certificate.private_key_and_cert_chain_pem.bytes())
        with (tree / "etc/ssl/certs/ca-certificates.crt").open("ab") as trusted:
            trusted.write(b"\n" + authority.cert_pem.bytes())
        with (tree / "etc/hosts").open("a", encoding="utf-8") as hosts:
            hosts.write(takers.ADDRESSES)
        with booted(tree) as running:
            put(running, "srv/taker.py", takers.PROGRAM)
            running.run("systemd-run", "--unit=taker", "python3", "/srv/taker.py")
            yield running
