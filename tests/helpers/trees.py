"""File trees written down as text: a path and its content a line, `path -> target` for a link, `path/` for a folder."""

from __future__ import annotations

from pathlib import Path


def grow(root: Path, text: str) -> Path:
    """Make the tree below `root`; in a file's content \\n and \\0 stand for themselves. Returns `root`."""
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if " -> " in line:
            name, target = line.split(" -> ")
            path = root / name.strip()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(target.strip())
            continue
        name, _, content = line.partition(": ")
        path = root / name.strip()
        if name.strip().endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.replace("\\n", "\n").replace("\\0", "\0") + "\n", encoding="utf-8")
    return root
