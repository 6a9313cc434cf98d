"""An interpreter that lacks a module is told so in one line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from omniwatch.system import needed


@pytest.mark.parametrize(
    ("package", "module", "name"),
    [("omniwatch.tap", "msgspec", "msgspec"), ("omniwatch.resume", "yaml", "PyYAML")],
)
def test_what_is_missing_is_named_in_one_line(package: str, module: str, name: str) -> None:
    program = (
        f"import sys; sys.modules[{module!r}] = None\n"
        f"try:\n    import {package}\n"
        "except ImportError as error:\n    print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert ran.stdout.startswith(f"{package} needs {name}, which ")
    assert ran.stdout.count("\n") == 1


def test_what_an_extra_brings_is_named_with_it() -> None:
    needed.of_extra("drawing", "json", "plot")
    with pytest.raises(
        ModuleNotFoundError, match=r"^drawing needs no_such: pip install 'omniwatch\[plot\]'$"
    ):
        needed.of_extra("drawing", "no_such", "plot")
