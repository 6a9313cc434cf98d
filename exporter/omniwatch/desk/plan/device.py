"""The devices a plan is made for, and this one."""

from __future__ import annotations

import msgspec


class DeviceMemory(msgspec.Struct, frozen=True):
    """Memory that CPU and GPU share, as the kernel counts it, and how fast it is read (0: unknown)."""

    name: str
    memory_bytes: int
    bandwidth_bytes_s: float = 0.0


def _mib(count: int) -> int:
    return count * 2**20


DEVICES = {
    "orin-64": DeviceMemory("Jetson AGX Orin 64 GB", _mib(62841), 204.8e9),
    "orin-32": DeviceMemory("Jetson AGX Orin 32 GB", _mib(30698), 204.8e9),
    "thor": DeviceMemory("Jetson AGX Thor 128 GB", _mib(125772), 273e9),
}
"""Memory as tegrastats prints it (of the nominal size a part is kept from Linux); bandwidth from NVIDIA's data sheets."""


def of_size(memory_gb: float) -> DeviceMemory:
    """A device of which only the memory is known, in GB of 10^9 bytes."""
    return DeviceMemory(f"a device with {memory_gb:g} GB", round(memory_gb * 1e9))
