"""List the TCP ports that Omniwatch's own programs listen on unless told otherwise."""

from __future__ import annotations

NOTIFY = 9095
"""`omniwatch notify`; 9093 and 9094 are Alertmanager's."""
SIDECAR = 9842
"""`omniwatch exporter`: /metrics and the live page."""
UPLINK = 9843
"""The agent that sends a device's series to the centre."""
FLEET = 9844
"""`omniwatch fleet serve`: targets for Prometheus' service discovery."""
PROBE = 9845
"""`omniwatch probe --interval`: /metrics."""
SIMULATED_FLEET = 9850
"""`omniwatch simulate fleet`."""
