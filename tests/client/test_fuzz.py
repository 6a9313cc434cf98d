"""A broken or hostile server crashes neither client, hangs neither, and gets no exception out of `speak`."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from pathlib import Path

import pytest
import trustme

from helpers.client_fuzz import compile_fuzzer, fuzz_cpp, fuzz_python, fuzz_sockets

# The compiler, with two sanitizers, may take a busy machine more than the two minutes that a test has.
pytestmark = [pytest.mark.programs, pytest.mark.timeout(300)]
SECONDS = 30.0
"""For all; `make bench` runs ten times as long, from other seeds."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_fuzzer(tmp_path_factory.mktemp("cpp"))


def check(reasons: Counter[str]) -> None:
    """Turns must end in all the ways there are: else the made-up answers reach only a part of the client."""
    assert {"done", "no way to the server", "refused: odd format", "refused: odd x-omni-frame-ms"} <= set(
        reasons
    )


def test_python() -> None:
    check(fuzz_python(0, SECONDS / 3))


def test_cpp_in_virtual_time(program: Path) -> None:
    check(fuzz_cpp(program, 0, SECONDS / 3))


@pytest.mark.parametrize("encrypted", [False, True], ids=["tcp", "tls"])
def test_cpp_over_sockets(program: Path, tmp_path: Path, encrypted: bool) -> None:
    tls = ca_file = None
    if encrypted:
        authority, ca_file = trustme.CA(), tmp_path / "ca.pem"
        authority.cert_pem.write_to_path(ca_file)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(tls)
    reasons = asyncio.run(fuzz_sockets(program, 0, SECONDS / 6, tls, ca_file))
    assert {"no way to the server", "done"} <= set(reasons), reasons
