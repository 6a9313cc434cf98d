"""Describe the machine: versions, sensors, disk, clock, and what a CPU quota does to a frame."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric

from omniwatch import __version__, host
from omniwatch.doctor.device import AbsentError, DeviceAccess
from omniwatch.host import cgroup
from omniwatch.tune import model
from omniwatch.tune.sample import limit_of, runnable_threads

PACKAGES = (
    "bcrypt",
    "click",
    "jinja2",
    "msgspec",
    "prometheus-client",
    "PyYAML",
    "grafana-client",
    "websockets",
)
VLLM = (
    "opt/*/lib/python3*/site-packages/vllm*.dist-info",
    "opt/*/venv/lib/python3*/site-packages/vllm*.dist-info",
    "usr/local/lib/python3*/dist-packages/vllm*.dist-info",
    "usr/lib/python3*/site-packages/vllm*.dist-info",
)
"""Where a vLLM may be. It is not started for its version: that takes tens of seconds."""
_CLOCK = re.compile(r"(?:Timezone|LocalRTC|CanNTP|NTP|NTPSynchronized|TimeUSec|RTCTimeUSec)=")
_GOT = re.compile(r", got .*", re.DOTALL)
PROGRAMS = (("prometheus",), ("prometheus-alertmanager", "alertmanager"))


def versions(device: DeviceAccess) -> Iterator[tuple[str, str]]:
    """Yield the versions of everything in the chain. Raises AbsentError at the end."""
    lines, missing = [f"omniwatch {__version__}", f"python {sys.version.split()[0]}"], []
    for package in PACKAGES:
        try:
            lines.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            lines.append(f"{package} not installed")
    kernel = platform.uname()
    lines.append(f"kernel {kernel.system} {kernel.release} {kernel.machine} ({kernel.version})")
    for path in ("/etc/os-release", "/etc/nv_tegra_release"):
        try:
            lines += [f"{path}: {line}" for line in device.read(path).splitlines() if line]
        except AbsentError as error:
            missing.append(str(error))
    found = [path.name for pattern in VLLM for path in sorted(device.root.glob(pattern))]
    lines += [name.removesuffix(".dist-info").replace("-", " ") for name in found]
    missing += [] if found else ["no vLLM where it is looked for"]
    for names in PROGRAMS:
        said = ""
        for name in names:
            try:
                said = device.run([name, "--version"]).partition("\n")[0]
            except AbsentError:
                continue
            break
        lines += [said] if said else []
        missing += [] if said else [f"{names[-1]} is not installed here"]
    yield "versions.txt", "".join(f"{line}\n" for line in lines)
    if missing:
        raise AbsentError("; ".join(missing))


def readers(device: DeviceAccess) -> Iterator[tuple[str, str]]:
    """Yield what each reader of the host's signals returns: cgroup, Jetson, memory, systemd. Raises AbsentError."""
    missing = []
    for name, reader in host.discover(device.settings, device.root).items():
        families: list[Metric] = []
        fault = ""
        try:
            for family in reader.collect():
                families.append(family)
        except Exception as error:  # A reader's own fault is evidence as well, beside what it could read.
            fault = f"{type(error).__name__}: {error}"
        if families:
            yield f"readers/{name}.prom", _exposed(families)
        elif not fault:
            fault = "nothing to read here"
        missing += [f"{name}: {fault}"] if fault else []
    if missing:
        raise AbsentError("; ".join(missing))


def _exposed(families: Iterable[Metric]) -> str:
    class Once:
        def collect(self) -> Iterable[Metric]:
            return families

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Once())
    return generate_latest(registry).decode()


def cpu(device: DeviceAccess) -> Iterator[tuple[str, str]]:
    """Yield what `omniwatch tune` would begin with: the quota, and how long it stops a frame. Raises AbsentError."""
    groups = cgroup.locate(device.settings.server, device.root)
    if not groups:
        raise AbsentError(f"{device.settings.server.unit}: no cgroup of it is there")
    threads = runnable_threads(groups[0].pids(), device.root / "proc")
    lines = [f"threads that run or want to, now: {threads}", f"CPUs: {os.cpu_count()}"]
    for group in groups:
        usage, limit = group.usage(), limit_of(group)
        lines.append(f"{group.name}: {usage}")
        if limit is None:
            lines.append(f"{group.name}: the kernel's cpu controller is not active for it")
            continue
        stop_ms = 1000 * model.blackout_s(limit, max(1, threads))
        lines.append(
            f"{group.name}: {limit.cores:g} CPUs; a stop of up to {stop_ms:.0f} ms with these threads"
        )
    yield "cpu.txt", "".join(f"{line}\n" for line in lines)


def system(device: DeviceAccess) -> Iterator[tuple[str, str]]:
    """Yield disk, memory, load and clock. Raises AbsentError at the end."""
    missing, lines = [], []
    for path in ("/", "/run/omniwatch", "/var/lib/omniwatch"):
        try:
            usage = shutil.disk_usage(device.at(path))
        except OSError as error:
            missing.append(f"{device.at(path)}: {error.strerror}")
            continue
        lines.append(f"{path}: {usage.used / usage.total:.1%} of {usage.total / 2**30:.1f} GiB used")
    yield "system/disk.txt", "".join(f"{line}\n" for line in lines)
    for name in ("meminfo", "loadavg", "uptime", "pressure/cpu", "pressure/memory", "pressure/io"):
        try:
            yield f"system/{name.replace('/', '-')}.txt", device.read(f"/proc/{name}")
        except AbsentError as error:
            missing.append(str(error))
    now = time.time()
    clock = [
        f"realtime {datetime.fromtimestamp(now, timezone.utc).isoformat()}",
        f"monotonic {time.monotonic():.3f}",
    ]
    try:
        clock += [line for line in device.run(["timedatectl", "show"]).splitlines() if _CLOCK.match(line)]
    except AbsentError as error:
        missing.append(str(error))
    yield "system/clock.txt", "".join(f"{line}\n" for line in clock)
    if missing:
        raise AbsentError("; ".join(missing))


def status(device: DeviceAccess) -> Iterator[tuple[str, str]]:
    """Yield what `omniwatch status` says."""
    from omniwatch.bundle.health import findings

    # A setting that does not hold is quoted with its value, which may be anything.
    shown = [
        finding._asdict() | {"says": _GOT.sub("", finding.says)}
        for finding in findings(device.root, device.config)
    ]
    yield "status.json", json.dumps(shown, indent=1) + "\n"
