"""Print what every form prints with --json."""

from __future__ import annotations

import click
import msgspec


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
