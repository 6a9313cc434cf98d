"""One run over a real path: a server, a listener, what happened and what the sidecar's code makes of the events."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import msgspec

from omniwatch import events
from omniwatch.core.streams import StreamTable
from omniwatch.desk.link.real import RealPath
from omniwatch.settings import Settings
from truth import Heard

HERE = Path(__file__).parent
TRIES = 3
"""Runs thrown away because the machine was busy, before the suite says so and fails."""
LOOK_S = 0.1


class BusyError(RuntimeError):
    """The carrier came late too often, in every try."""


class Look(NamedTuple):
    """What was shown at one moment, and what was true at the moment that it speaks of."""

    t: float
    shown_ms: float
    true_ms: float


class Judged(NamedTuple):
    """One turn: underrun and first speech as shown and as heard, in seconds, and every look at its drift."""

    underrun_shown_s: float
    underrun_true_s: float
    first_shown_s: float | None
    first_true_s: float
    looks: list[Look]
