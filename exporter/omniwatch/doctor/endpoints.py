"""Ask the running parts of the chain: the sidecar, the model server, Prometheus."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from omniwatch.doctor.device import AbsentError, DeviceAccess
from omniwatch.doctor.redact import safe_fields, unspoken

_SAMPLE = re.compile(
    r"# (?:HELP|TYPE|UNIT) [a-zA-Z_:][\w:]* |# EOF$"
    r'|[a-zA-Z_:][\w:]*(?:\{(?:[a-zA-Z_]\w*="(?:[^"\\]|\\.)*",?)*\})? [-+0-9.eEaInNf]+(?: |$)'
)


def sidecar(device: DeviceAccess) -> Iterator[tuple[str, str]]:
    """Yield the sidecar's pages. Raises AbsentError at the end."""
    pages = {
        "metrics.prom": "/metrics",
        "healthy.txt": "/-/healthy",
        "ready.txt": "/-/ready",
        "turns.json": "/turns.json",
    }
    yield from _each(device, f"http://{device.settings.site.exporter}", "sidecar", pages)


def model_server(device: DeviceAccess) -> Iterator[tuple[str, str]]:
    """Yield the model server's pages. Raises AbsentError at the end."""
    address = device.settings.site.model_server
    if not address:
        raise AbsentError("site.model_server is empty: it has no pages of its own")
    pages = {"metrics.prom": "/metrics", "health.txt": "/health"}
    yield from _each(device, f"http://{address}", "model-server", pages)


def prometheus(device: DeviceAccess) -> Iterator[tuple[str, str]]:
    """Yield the alerts that Prometheus holds and the rules it evaluates. Raises AbsentError at the end."""
    pages = {
        "alerts.json": "/api/v1/alerts",
        "rules.json": "/api/v1/rules",
        "targets.json": "/api/v1/targets?state=active",
    }
    yield from _each(device, device.prometheus.rstrip("/"), "prometheus", pages)


def exposition(text: str) -> str:
    """Return the lines that are of the text format, and no others."""
    return "".join(f"{line}\n" for line in text.splitlines() if _SAMPLE.match(line))


def unspoken_lines(text: str) -> str:
    """Cut each line where a user's words begin."""
    return "".join(f"{unspoken(line)}\n" for line in text.splitlines())


def _kept(device: DeviceAccess, name: str, text: str) -> str:
    """Return what a page may be of its kind, and nothing else that stands in it."""
    if name.endswith(".prom"):
        return exposition(text)
    if name.endswith(".json"):
        try:
            msgspec.json.decode(text.encode())
        except (msgspec.DecodeError, RecursionError):
            return f"# not JSON, {len(text)} characters\n"
        return unspoken_lines(text)
    return device.names.unaddressed(safe_fields(unspoken_lines(text)))


def _each(device: DeviceAccess, base: str, folder: str, pages: dict[str, str]) -> Iterator[tuple[str, str]]:
    missing = []
    for name, path in pages.items():
        try:
            text = device.fetch(base + path)
            yield f"{folder}/{name}", _kept(device, name, text)
        except AbsentError as error:
            missing.append(str(error))
    if missing:
        raise AbsentError("; ".join(dict.fromkeys(missing)))
