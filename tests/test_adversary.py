"""`make adversary`: its minutes are those that the documentation gives, and every attack has its own."""

from __future__ import annotations

import re

from helpers.adversary import MINUTES, WHOLE
from helpers.paths import CLONE


def test_every_attack_has_its_minutes():
    attacks = {path.stem for path in (CLONE / "tests/adversary").glob("*.py")}
    assert attacks == {*MINUTES, *WHOLE}


def test_the_minutes_are_an_hour_as_the_documentation_says():
    (stated,) = re.findall(
        r"^\| `make adversary` \|.*\| (\d+) \|$", (CLONE / "CONTRIBUTING.md").read_text(), re.MULTILINE
    )
    assert sum(MINUTES.values()) + sum(WHOLE.values()) == int(stated) == 60
