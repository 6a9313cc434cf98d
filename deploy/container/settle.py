"""Write an image's archive without what buildah makes up at random: `python settle.py ARCHIVE OUT`. The same layers then give the same bytes.

Docker's format keeps the id and the host name of the container that an image was made in, and the id of the image before.
None of them means anything on another machine.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path
from typing import IO, Any

MADE_UP = ("container", "container_config", "parent")


def settle(archive: Path, out: Path) -> None:
    """Write it; layers, their order and the image's own settings stay."""
    with tarfile.open(archive) as image, tarfile.open(out, "w") as settled:
        (about,) = json.load(opened(image, "manifest.json"))
        config = json.load(opened(image, about["Config"]))
        for name in MADE_UP:
            config.pop(name, None)
        config["config"]["Hostname"] = ""
        for step in config["history"]:
            # The id of the image before.
            step.pop("comment", None)
        content = compact(config)
        about["Config"] = f"{hashlib.sha256(content).hexdigest()}.json"
        # An image may have the same layer twice.
        for layer in dict.fromkeys(about["Layers"]):
            add(settled, layer, opened(image, layer), image.getmember(layer).size)
        for name, text in ((about["Config"], content), ("manifest.json", compact([about]))):
            add(settled, name, io.BytesIO(text), len(text))


def opened(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    """Open a file of an archive."""
    found = archive.extractfile(name)
    assert found is not None, name
    return found


def add(archive: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    """Add a file, of no time and no owner."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o444
    archive.addfile(member, content)


def compact(value: Any) -> bytes:
    """Write JSON in one way."""
    return json.dumps(value, separators=(",", ":")).encode()


if __name__ == "__main__":
    settle(Path(sys.argv[1]), Path(sys.argv[2]))
