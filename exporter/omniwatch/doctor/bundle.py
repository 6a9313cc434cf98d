"""Gather all parts of the evidence, and write them as one archive or not at all. A part that fails stops no other."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from omniwatch.bundle.units import OWN
from omniwatch.doctor import config, endpoints, journal, machine, spool
from omniwatch.doctor.device import AbsentError, DeviceAccess
from omniwatch.doctor.redact import Redactor
from omniwatch.system import atomic_write

FOLDER = "omniwatch-doctor"
SUMMARY = "SUMMARY.md"
MOST_CHARACTERS = 4 * 2**20
"""Most characters kept of one file, its last ones."""


class Part(NamedTuple):
    """One kind of evidence: `about` is a line for people, `gather` yields its files."""

    name: str
    about: str
    gather: Callable[[DeviceAccess], Iterator[tuple[str, str]]]


PARTS = (
    Part("config", "omniwatch.yaml and the web configuration, without secrets and comments", config.gather),
    Part("versions", "versions of Omniwatch, Python, packages, kernel, vLLM, Prometheus, Alertmanager", machine.versions),
    Part("status", "what `omniwatch status` says", machine.status),
    Part("sidecar", "the sidecar's /metrics, /-/healthy, /-/ready, and the last bad turns, /turns.json", endpoints.sidecar),
    Part("model server", "the model server's /metrics and /health", endpoints.model_server),
    Part("prometheus", "alerts, rules and targets of Prometheus", endpoints.prometheus),
    Part("events", "the last events of the spool, clients' ids replaced", spool.gather),
    Part("readers", "cgroup, Jetson, memory and systemd as the sidecar reads them", machine.readers),
    Part("cpu", "the CPU quota and how long it stops a frame", machine.cpu),
    Part("units", "what systemd says of the units, not their environment", journal.states),
    Part("journal", "the units' last journal entries, without what users said and clients' addresses", journal.gather),
    Part("system", "disk, memory, load, clock", machine.system),
)  # fmt: skip


@dataclass
class Evidence:
    """What was gathered: `files` by name, `missing` by part, both redacted."""

    files: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    raw: dict[str, str] = field(default_factory=dict, repr=False)
    """The files before redaction: to be read, never to be written."""
    redact: Redactor = field(default_factory=Redactor)
    """Redacts what the summary says of `raw`."""


def gather(device: DeviceAccess, progress: Callable[[Part], object] = lambda part: None) -> Evidence:
    """Gather every part. For one that fails, `missing` has the reason."""
    redact = Redactor(config.secrets(device))
    found = Evidence(redact=redact)
    for part in PARTS:
        progress(part)
        try:
            for name, text in part.gather(device):
                name = _redacted(name, redact)
                found.raw[name], found.files[name] = text, redact(text)[-MOST_CHARACTERS:]
        except AbsentError as error:
            found.missing[part.name] = redact(str(error))
        except (
            Exception
        ) as error:  # Evidence is wanted most where something is odd: no part may take the others along.
            found.missing[part.name] = redact(f"{type(error).__name__}: {error}")
    return found


def _redacted(name: str, redact: Redactor) -> str:
    """Return a file's name without secrets. Most names are this program's own, whatever secrets are called."""
    folder, _, last = name.partition("/")
    if folder not in ("events", "journal", "systemd") or PurePosixPath(last).stem in OWN:
        return name
    return f"{folder}/{redact(last)}"


def write(evidence: Evidence, summary: str, target: Path, t: float) -> None:
    """Write the archive, the summary first, readable by its owner alone: whole or not at all. Raises OSError."""
    with (
        atomic_write.replacing(target, mode=0o600, durable=True) as file,
        tarfile.open(fileobj=file, mode="w:gz") as archive,
    ):
        for name, text in {SUMMARY: summary, **evidence.files}.items():
            content = text.encode("utf-8", "replace")
            entry = tarfile.TarInfo(f"{FOLDER}/{name}")
            entry.size, entry.mtime, entry.mode = len(content), int(t), 0o600
            archive.addfile(entry, io.BytesIO(content))
