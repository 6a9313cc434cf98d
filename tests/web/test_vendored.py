"""What the live page uses of others: as it was published, with its licence, and named wherever it goes."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import yaml

from helpers.paths import CLONE

STATIC = CLONE / "exporter/omniwatch/web/static"
VERSION = "1.6.32"


def test_uplot_is_as_it_was_published() -> None:
    sums = dict(reversed(line.split("  ")) for line in (STATIC / "uPlot.sha256").read_text().splitlines())
    assert set(sums) == {path.name for path in STATIC.glob("uPlot*")} - {"uPlot.sha256"}
    assert sums == {name: hashlib.sha256((STATIC / name).read_bytes()).hexdigest() for name in sums}


def test_its_version_is_the_one_that_is_named() -> None:
    first, _ = (STATIC / "uPlot.iife.min.js").read_text(encoding="utf-8").split("\n", 1)
    assert re.search(r"uPlot \(v([\d.]+)\)", first)[1] == VERSION
    package = yaml.safe_load((CLONE / "deploy/packaging/omniwatch.yaml").read_text(encoding="utf-8"))
    assert f"uPlot {VERSION}" in package["description"]


def test_the_wheel_names_its_licence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=CLONE, check=True, capture_output=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = wheel.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        text = wheel.read(metadata).decode()
    assert "License-Expression: Apache-2.0 AND MIT\n" in text
    assert any(name.endswith("licenses/exporter/omniwatch/web/static/uPlot.LICENSE") for name in names)
    assert "omniwatch/web/static/uPlot.iife.min.js" in names
