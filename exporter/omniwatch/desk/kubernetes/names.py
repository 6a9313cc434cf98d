"""Names and labels that several objects share."""

from __future__ import annotations

from typing import Any

from omniwatch import __version__
from omniwatch.settings import Settings
from omniwatch.system import ports

NAME = "omniwatch"
SIDECAR = {"app.kubernetes.io/component": "omniwatch-sidecar"}
"""The label of a pod that has a sidecar: of the DaemonSet's, and of the model server's in mode `sidecar`."""
UID = 65532
"""User and group of the image."""
PORT = ports.SIDECAR
PORT_NAME = "omniwatch"
SECRET = "omniwatch-receivers"
"""The Secret that holds what the settings name files for: a key for each, which is the file's name."""
Object = dict[str, Any]


def image(settings: Settings) -> str:
    """Return the sidecar's image."""
    return settings.kubernetes.image or f"localhost/{NAME}:{__version__}"


def metadata(settings: Settings, name: str = NAME, **labels: str) -> Object:
    """Return an object's metadata, with the label that the operator's selectors ask for."""
    return {
        "name": name,
        "namespace": settings.kubernetes.namespace,
        "labels": {
            "app.kubernetes.io/name": NAME,
            "app.kubernetes.io/version": __version__,
            "release": settings.kubernetes.release,
            **labels,
        },
    }


def pairs(labels: list[str]) -> dict[str, str]:
    """Return labels written KEY=VALUE as a mapping."""
    return dict(one.split("=", 1) for one in labels)
