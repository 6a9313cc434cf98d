"""Put the SBOM that OMNIWATCH_SBOM names into the wheel, as PEP 770 says. Without that variable a wheel has none."""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Hook(BuildHookInterface[Any]):
    """What hatchling asks before it writes a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file."""
        if sbom := os.environ.get("OMNIWATCH_SBOM"):
            build_data["sbom_files"].append(sbom)
