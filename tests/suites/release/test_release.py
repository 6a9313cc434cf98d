"""`make release` from two folders: the same bytes, sums that hold, and lists of exactly what is in each file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from omniwatch import __version__
from suites.container.engine import Engine
from suites.release.clones import COMMIT_T, Released, again, release, tools

PACKAGES = ("omniwatch", "omniwatch-desk")
DEBS = [f"{name}_{__version__}_{arch}.deb" for name in PACKAGES for arch in ("amd64", "arm64")]
IMAGES = [f"{name}_{__version__}_amd64.image.tar.gz" for name in PACKAGES]
WHEEL, SOURCE = f"omniwatch-{__version__}-py3-none-any.whl", f"omniwatch-{__version__}.tar.gz"
SBOM = f"omniwatch-{__version__}.dist-info/sboms/omniwatch.cdx.json"
PYTHONS = "import importlib.metadata as m; [print(d.name, d.version) for d in m.distributions()]"


def listed(document: dict[str, Any], kind: str) -> set[tuple[str, str]]:
    """Names and versions of an SBOM's packages of one kind."""
    return {
        (found["name"], found["version"])
        for found in document["components"]
        if found["purl"].startswith(f"pkg:{kind}/")
    }


def test_a_release_is_the_same_bytes_from_two_folders(
    released: Released, images: Engine, tmp_path: Path
) -> None:
    other = release(again(released.clone, tmp_path / "clone"), images)
    expected = sorted([WHEEL, SOURCE, *DEBS, *IMAGES, *(f"{name}.cdx.json" for name in DEBS + IMAGES)])
    sums = (released.dist / "SHA256SUMS").read_text()
    assert [line.split()[1] for line in sums.splitlines()] == expected
    assert {path.name for path in released.dist.iterdir()} == {"SHA256SUMS", *expected}
    assert (other.dist / "SHA256SUMS").read_text() == sums
    for dist in (released.dist, other.dist):
        subprocess.run(["sha256sum", "--check", "--quiet", "--strict", "SHA256SUMS"], cwd=dist, check=True)


def test_images_that_are_not_made_are_said(released: Released) -> None:
    assert "release: no images for arm64: IMAGES names only amd64\n" in released.said


@pytest.mark.parametrize("name", PACKAGES)
def test_an_images_sbom_lists_exactly_what_is_in_it(released: Released, images: Engine, name: str) -> None:
    archive = released.file(f"{name}_*_amd64.image.tar.gz")
    images.load(archive)
    run = ["run", "--rm", "--entrypoint", "", f"localhost/{name}:{__version__}"]
    document = json.loads(Path(f"{archive}.cdx.json").read_text())
    of_dpkg = images.podman(*run, "dpkg-query", "--show", "--showformat", "${Package} ${Version}\n").stdout
    assert listed(document, "deb") == {tuple(line.split()) for line in of_dpkg.splitlines()}
    of_python = images.podman(*run, "python3", "-c", PYTHONS).stdout
    assert listed(document, "pypi") == {tuple(line.split()) for line in of_python.splitlines()}
    assert len(document["components"]) == len(of_dpkg.splitlines()) + len(of_python.splitlines())
    assert document["metadata"]["timestamp"] == "2026-09-21T14:13:20+00:00", COMMIT_T


@pytest.mark.parametrize("name", DEBS)
def test_a_packages_sbom_lists_exactly_what_is_in_it(released: Released, tmp_path: Path, name: str) -> None:
    subprocess.run(["dpkg-deb", "-x", released.dist / name, tmp_path], check=True)
    script = f"import importlib.metadata as m; [print(d.name, d.version) for d in m.distributions(path=['{tmp_path}/opt/omniwatch/site'])]"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    document = json.loads((released.dist / f"{name}.cdx.json").read_text())
    assert found
    assert listed(document, "pypi") == {tuple(line.split()) for line in found.splitlines()}
    assert len(document["components"]) == len(found.splitlines())


def test_the_wheel_lists_what_it_needs_and_is_what_is_in_the_image(released: Released) -> None:
    with zipfile.ZipFile(released.dist / WHEEL) as wheel:
        document = json.loads(wheel.read(SBOM))
        assert f"\n{SBOM},sha256=" in wheel.read(f"omniwatch-{__version__}.dist-info/RECORD").decode()
    in_image = json.loads((released.dist / f"{IMAGES[0]}.cdx.json").read_text())
    assert listed(document, "pypi") | {("omniwatch", __version__)} == listed(in_image, "pypi")
    assert document["metadata"]["component"]["version"] == __version__


def test_the_source_builds_the_same_wheel(released: Released, tmp_path: Path) -> None:
    subprocess.run(["tar", "-xzf", released.dist / SOURCE, "-C", tmp_path], check=True)
    with zipfile.ZipFile(released.dist / WHEEL) as wheel:
        wheel.extract(SBOM, tmp_path)
    source = tmp_path / f"omniwatch-{__version__}"
    subprocess.run(
        [tools() / "bin/hatchling", "build", "--target", "wheel", "--directory", tmp_path / "again"],
        cwd=source,
        env=os.environ | {"SOURCE_DATE_EPOCH": str(COMMIT_T), "OMNIWATCH_SBOM": str(tmp_path / SBOM)},
        check=True,
    )
    assert (tmp_path / "again" / WHEEL).read_bytes() == (released.dist / WHEEL).read_bytes()
