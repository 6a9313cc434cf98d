"""The device's memory as the kernel states it."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.host_readers import scraped
from helpers.trees import grow
from omniwatch.doctor import machine
from omniwatch.doctor.device import AbsentError, DeviceAccess
from omniwatch.host.memory import Reader, total_bytes
from omniwatch.settings import Settings


def scrape(root: Path) -> dict[str, float]:
    return {s.name: s.value for family in Reader(Settings(), root).collect() for s in family.samples}


def test_memory_and_pressure(tmp_path: Path) -> None:
    grow(tmp_path, "proc/meminfo: MemTotal:       64349184 kB\\nMemFree:  1 kB\\nMemAvailable:   2411520 kB")
    grow(tmp_path, "proc/pressure/cpu: some avg10=0.00 avg60=0.00 avg300=0.00 total=0")
    assert scrape(tmp_path) == {
        "omni_device_memory_bytes": 64349184 * 1024,
        "omni_device_memory_available_bytes": 2411520 * 1024,
        "omni_psi_available": 1,
    }
    assert total_bytes(tmp_path) == 64349184 * 1024


def test_a_machine_that_says_nothing(tmp_path: Path) -> None:
    assert scraped(Reader(Settings(), tmp_path), "memory") == {
        "omni_psi_available": 0,
        "omniwatch_host_reader_up memory": 0,
    }
    assert total_bytes(tmp_path) is None


def test_half_an_answer_is_a_fault_as_well(tmp_path: Path) -> None:
    reader = Reader(Settings(), grow(tmp_path, "proc/meminfo: MemTotal:       64349184 kB"))
    assert scraped(reader, "memory") == {
        "omni_device_memory_bytes": 64349184 * 1024,
        "omni_psi_available": 0,
        "omniwatch_host_reader_up memory": 0,
    }
    parts = machine.readers(DeviceAccess(Settings(), root=tmp_path))
    evidence = next(text for name, text in parts if name == "readers/memory.prom")
    assert "omni_device_memory_bytes 6.58" in evidence
    with pytest.raises(AbsentError, match=r"memory: OSError: .*/proc/meminfo: no MemAvailable"):
        list(parts)


def test_this_machine() -> None:
    found = scrape(Path("/"))
    assert 0 < found["omni_device_memory_available_bytes"] <= found["omni_device_memory_bytes"]
