"""The places on a device, and of its own servers, that more than one room names."""

from __future__ import annotations

from pathlib import Path

CONFIG = Path("/etc/omniwatch/omniwatch.yaml")
"""The device's settings, which each command reads that is given no other file."""
CONFIG_DIGEST = "/-/config"
"""Where the sidecar serves the digest of the settings that it runs with."""
