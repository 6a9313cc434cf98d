"""The places that CONTRIBUTING names for a chat robot and a dialect belong together: what stands in one stands in the others."""

from __future__ import annotations

import re
from typing import get_args, get_type_hints

from helpers import fake_robots
from helpers.imports import PACKAGE
from helpers.paths import CLONE
from omniwatch.notify import robots
from omniwatch.settings.receivers import Robot


def test_every_robot_has_its_limits_a_stand_in_and_an_example():
    kinds = set(get_args(get_type_hints(Robot)["kind"]))
    found = robots.discover()
    assert set(found) == kinds
    for robot in found.values():
        assert robot.max_bytes > 0
        assert robot.too_fast
        assert "{}" in robot.at
    assert kinds <= set(fake_robots.CHECKS)
    sample = (CLONE / "deploy/omniwatch.sample.yaml.j2").read_text()
    assert set(re.findall(r"- kind: (\w+)", sample)) == kinds


def test_every_dialect_of_the_tap_has_its_paths_in_the_table():
    """A dialect is a module with an observer of its own; `observer.py` has what they share."""
    modules = {path.stem: path.read_text() for path in (PACKAGE / "tap").glob("*.py")}
    observers = {
        f"{module}.{name}"
        for module, text in modules.items()
        if module != "observer"
        for name in re.findall(r"^class (\w+Observer)\b", text, flags=re.MULTILINE)
    }
    assert observers == set(re.findall(r"\b\w+\.\w+Observer\b", modules["__init__"]))
