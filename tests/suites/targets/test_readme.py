"""README's two commands, on a machine that has nothing but what README asks for: as root, and as a user with sudo."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from helpers.paths import CLONE
from suites.system.machine import copy_of, inside, run
from suites.targets import distributions

USER = "dev"


class Fresh(NamedTuple):
    """A fresh machine's tree, and whose clone of this one is in it."""

    tree: Path
    user: str
    clone: str


def who(distribution: distributions.Distribution, user: str) -> object:
    return pytest.param((distribution, user), id=f"{distribution.codename}-{user}")


EACH = [
    *(who(distribution, "root") for distribution in distributions.PROMISED),
    who(distributions.JAMMY, USER),
]


@pytest.fixture(scope="module", params=EACH)
def fresh(request: pytest.FixtureRequest) -> Iterator[Fresh]:
    distribution, user = request.param
    try:
        bare = distributions.fresh_tree(distribution)
    except distributions.NotReachedError as error:
        pytest.skip(f"not run: the archive of {distribution.name} is not reached: {error}")
    with copy_of(bare, f"{bare.name}-{user}") as tree:
        if user == USER:
            inside(tree, "useradd", "--create-home", "--shell", "/bin/bash", USER)
            (tree / f"etc/sudoers.d/{USER}").write_text(f"{USER} ALL=(ALL) NOPASSWD: ALL\n", encoding="utf-8")
        home = "/root" if user == "root" else f"/home/{user}"
        clone = f"{home}/omniwatch"
        run("git", "clone", "--quiet", str(CLONE), f"{tree}{clone}")
        inside(tree, "chown", "-R", f"{user}:", clone)
        yield Fresh(tree, user, clone)


def make(fresh: Fresh, *words: str) -> str:
    return inside(fresh.tree, "make", "-C", fresh.clone, *words, network=True, user=fresh.user)


def test_make_demo_shows_its_page(fresh: Fresh) -> None:
    assert "CodecDrift" in make(fresh, "demo", "DEMO_ARGS=--once")


def test_make_test_passes(fresh: Fresh) -> None:
    said = make(fresh, "test")
    assert re.search(r"^\d+ passed.* in ", said, re.MULTILINE), said[-2000:]
