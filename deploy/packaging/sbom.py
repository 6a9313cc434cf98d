"""Write what a package or an image holds, as CycloneDX: `python sbom.py NAME VERSION OUT FILE…`, by the Python of tools.sh's folder.

FILE is a .deb, an image's archive, or wheels. A .deb and an image are read whole: Python's packages by their metadata, and
Debian's by dpkg's list. The time in it is SOURCE_DATE_EPOCH, and its number comes from its content: the same content, the same bytes.
"""

from __future__ import annotations

import datetime
import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

SPEC = SchemaVersion.V1_6
METADATA = ("METADATA", "direct_url.json")
DPKG, RELEASE = "var/lib/dpkg/status", "usr/lib/os-release"
REMOVED = ".wh."
"""Before a file's name in a layer: the file of a layer below is gone."""


def main(name: str, version: str, out: Path, files: list[Path]) -> None:
    """Write the SBOM; raise ValueError where it would be none."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for file in files:
            unpack(file, root)
        document = of_python(root)
        debian = list(of_debian(root))
    document["components"] = sorted(
        [*document.get("components", []), *debian], key=lambda component: component["bom-ref"]
    )
    kind = "container" if debian else "application"
    document["metadata"]["component"] = {
        "type": kind,
        "bom-ref": "this",
        "name": name,
        "version": version,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    document.setdefault("dependencies", []).append(
        {"ref": "this", "dependsOn": [component["bom-ref"] for component in document["components"]]}
    )
    epoch = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    document["metadata"]["timestamp"] = epoch.isoformat()
    content = json.dumps(document, sort_keys=True)
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}"
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    if error := JsonStrictValidator(SPEC).validate_str(text):
        raise ValueError(f"{out}: {error}")
    out.write_text(text, encoding="utf-8")


def unpack(file: Path, root: Path) -> None:
    """Take out of a file what says which packages it holds."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            wheel.extractall(root, [name for name in wheel.namelist() if is_wanted(name)])
    elif file.suffix == ".deb":
        content = subprocess.run(
            ["dpkg-deb", "--fsys-tarfile", file], stdout=subprocess.PIPE, check=True
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(content)) as tree:
            take(tree, root)
    else:
        # Whole: its list of layers is at the end, and a compressed file would be read anew for each.
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(file.read_bytes()))) as image:
            for layer in json.load(opened(image, "manifest.json"))[0]["Layers"]:
                with tarfile.open(fileobj=opened(image, layer)) as tree:
                    take(tree, root)


def opened(archive: tarfile.TarFile, name: str) -> Any:
    """Open a file in an archive; a link to another is followed."""
    found = archive.extractfile(name)
    assert found is not None, name
    return found


def is_wanted(name: str) -> bool:
    """Whether a file says what is installed."""
    path = PurePosixPath(name)
    return str(path) in (DPKG, RELEASE) or (
        path.name in METADATA and path.parent.suffix in (".dist-info", ".egg-info")
    )


def take(tree: tarfile.TarFile, root: Path) -> None:
    """Put the files that say what is installed below `root`, and take away those that a layer removes."""
    for member in tree:
        path = PurePosixPath(member.name)
        if path.name.startswith(REMOVED):
            gone = root / path.parent / path.name.removeprefix(REMOVED)
            subprocess.run(["rm", "-rf", "--", gone], check=True)
        elif member.isfile() and is_wanted(member.name):
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(opened(tree, member.name).read())


def of_python(root: Path) -> dict[str, Any]:
    """What cyclonedx-py makes of the packages below `root`: it asks an interpreter where they are, and this one answers."""
    sites = sorted({str(path.parent.parent) for path in root.rglob("METADATA")})
    script = root / "interpreter"
    script.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(sites or [str(root)])}\nEND\n", encoding="utf-8")
    script.chmod(0o755)
    command = [
        Path(sys.executable).with_name("cyclonedx-py"),
        "environment",
        "--output-reproducible",
        "--no-validate",
    ]
    done = subprocess.run(
        [*command, f"--spec-version={SPEC.to_version()}", script], stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout)


def of_debian(root: Path) -> Iterator[dict[str, Any]]:
    """Yield each package that dpkg has installed below `root`."""
    if not (root / DPKG).exists():
        return
    release = dict(
        line.split("=", 1)
        for line in (root / RELEASE).read_text(encoding="utf-8").splitlines()
        if "=" in line
    )
    distro = "-".join(release[key].strip('"') for key in ("ID", "VERSION_ID"))
    for paragraph in (root / DPKG).read_text(encoding="utf-8").split("\n\n"):
        field = dict(
            line.split(": ", 1)
            for line in paragraph.splitlines()
            if ": " in line and not line.startswith((" ", "\t"))
        )
        if field.get("Status", "").split()[-1:] != ["installed"]:
            continue
        name, version, arch = field["Package"], field["Version"], field["Architecture"]
        purl = f"pkg:deb/debian/{quote(name, safe='')}@{quote(version, safe='')}?arch={arch}&distro={distro}"
        yield {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), [Path(name) for name in sys.argv[4:]])
