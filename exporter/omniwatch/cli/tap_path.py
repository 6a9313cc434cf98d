"""Say where the tap lies, for the PYTHONPATH of a model server, or copy it there."""

from __future__ import annotations

from pathlib import Path

import click

from omniwatch.cli import os_error


@click.command()
@click.option(
    "--copy",
    "directory",
    type=click.Path(path_type=Path),
    help="Put the tap into this directory, such as a volume of the server's, unless the same one is there.",
)
def command(directory: Path | None) -> None:
    """Print the directory that a model server's PYTHONPATH has to have, for the tap to be found.

    It holds this package and no other, so that the server keeps its own libraries. A server in a container does not see
    it: --copy puts it where both see it, and prints that.

    \b
    Example:
      export PYTHONPATH=$(omniwatch tap-path)
      docker run --rm -v tap:/tap omniwatch tap-path --copy /tap
    """
    from omniwatch.bundle import tap_copy

    try:
        click.echo(tap_copy.here() if directory is None else tap_copy.put(directory))
    except OSError as error:
        raise os_error(error) from error
