"""Backtests run as a user runs them, and recordings to run them on."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from omniwatch import events as ev
from omniwatch.cli import main

T0 = 1_700_000_000


def record(path: Path, made: Iterable[ev.Event]) -> Path:
    """Write events as a server does, numbered."""
    numbered = []
    for number, event in enumerate(made):
        event.w, event.n = "writer", number
        numbered.append(ev.encode(event))
    path.write_bytes(b"".join(numbered))
    return path


def run(*arguments: object, text: bytes | None = None) -> tuple[int, str, str]:
    """Run the command; return exit code, output and errors."""
    done = CliRunner().invoke(main, ["backtest", *map(str, arguments)], input=text)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def backtested(*arguments: object) -> dict[str, Any]:
    """Run the command for its JSON."""
    code, printed, errors = run(*arguments, "--json")
    assert code == 0, errors
    found: dict[str, Any] = json.loads(printed)
    return found


def outcomes(found: dict[str, Any]) -> dict[str, str]:
    """Each rule's outcome by its name."""
    return {rule["alert"]: rule["outcome"] for rule in found["rules"]}


def lives(found: dict[str, Any], alert: str) -> list[tuple[float | None, ...]]:
    """When an alert was pending, firing and over, in seconds from T0, over all its label sets."""
    return [
        tuple(
            None if episode[name] is None else episode[name] - T0
            for name in ("pending_t", "firing_t", "resolved_t")
        )
        for rule in found["rules"]
        if rule["alert"] == alert
        for one in rule["alerts"]
        for episode in one["episodes"]
    ]
