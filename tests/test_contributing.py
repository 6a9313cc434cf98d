"""The places that CONTRIBUTING names for a dialect of the model server belong together."""

from __future__ import annotations

import re

from helpers.imports import PACKAGE


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
