"""Where the data folders are: inside the installed package, else beside exporter/ in a clone."""

from __future__ import annotations

from pathlib import Path

FOLDERS = ("alerts", "dashboards", "deploy", "runbooks")
"""What a site is rendered from."""


def root() -> Path:
    """Return the directory that holds the data folders."""
    packaged = Path(__file__).parents[1] / "_data"
    if (packaged / FOLDERS[0]).is_dir():
        return packaged
    return Path(__file__).parents[3]
