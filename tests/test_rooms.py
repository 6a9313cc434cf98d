"""The layout: imports run one way, and the root holds the two vocabularies."""

from __future__ import annotations

import sys
from graphlib import CycleError, TopologicalSorter

import pytest

from helpers import imports

BROUGHT_BY_VLLM = {"msgspec"}


@pytest.fixture(scope="module")
def modules() -> imports.Graph:
    return imports.of_modules()


@pytest.mark.slow
def test_no_file_stands_in_a_circle(modules):
    TopologicalSorter(modules).prepare()


def test_no_room_imports_one_that_imports_it(modules):
    TopologicalSorter(imports.of_rooms(modules)).prepare()


def test_a_circle_around_a_corner_is_found():
    around = {
        "omniwatch.a.x": {"omniwatch.b.y"},
        "omniwatch.b.z": {"omniwatch.c"},
        "omniwatch.c": {"omniwatch.a.v"},
    }
    TopologicalSorter(around).prepare()
    with pytest.raises(CycleError):
        TopologicalSorter(imports.of_rooms(around)).prepare()


def test_a_circle_inside_the_desk_is_found():
    inside = {
        "omniwatch.desk.a.x": {"omniwatch.desk.b.y"},
        "omniwatch.desk.b.z": {"omniwatch.desk.a.v"},
    }
    with pytest.raises(CycleError):
        TopologicalSorter(imports.of_rooms(inside)).prepare()


@pytest.mark.parametrize(
    ("part", "may", "tell"),
    [
        ("desk", {"desk"}, set()),
        ("centre", {"desk", "centre"}, set()),
        ("notify", {"notify"}, set()),
        # Settings and install name the middleware, which a model server imports.
        ("resume", {"desk", "resume"}, {"bundle", "settings"}),
    ],
)
def test_no_arrow_leads_into_what_a_device_does_not_have(modules, part: str, may: set[str], tell: set[str]):
    rooms = imports.of_rooms(modules)
    assert {"desk/plan", "centre"} <= rooms.keys()
    arrows = {
        (room, need)
        for room, needs in rooms.items()
        for need in needs
        if need.partition("/")[0] == part and room.partition("/")[0] not in may
    }
    assert not arrows
    name = f"omniwatch.{part}".encode()
    named = [path for path in imports.PACKAGE.rglob("*.py") if name in path.read_bytes()]
    assert {path.relative_to(imports.PACKAGE).parts[0] for path in named} == may | tell


def test_the_root_holds_the_vocabularies_and_rooms():
    loose = {path.name for path in imports.PACKAGE.glob("*.py")}
    assert loose == {"__init__.py", "__main__.py", "events.py", "frames.py"}


def test_every_room_says_what_it_is_for():
    for room in [*imports.PACKAGE.iterdir(), *(imports.PACKAGE / "desk").iterdir()]:
        if any(room.glob("*.py")):
            assert (room / "__init__.py").read_text(encoding="utf-8").startswith('"""'), room.name


def test_the_tap_needs_only_what_vllm_brings(modules):
    outside = {name for name in imports.reached(modules, "omniwatch.tap") if not name.startswith("omniwatch")}
    assert outside - BROUGHT_BY_VLLM <= sys.stdlib_module_names


def test_only_the_desk_reads_promql(modules):
    readers = {module for module, needs in modules.items() if "promql_parser" in needs}
    assert readers == {"omniwatch.desk.promql"}


def test_the_core_is_pure(modules):
    assert imports.of_rooms(modules)["core"] == {"events", "frames", "settings"}
    outside = {
        need for module, needs in modules.items() if module.startswith("omniwatch.core") for need in needs
    }
    assert not outside & {"time", "datetime", "os", "pathlib", "socket", "threading", "logging"}
