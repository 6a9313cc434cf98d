"""Show the runbook page of an alert."""

from __future__ import annotations

from pathlib import Path

import click

from omniwatch.cli import config_option, is_given
from omniwatch.system.errors import UserError


@click.command()
@click.argument("name", required=False)
@config_option("The device's omniwatch.yaml, whose site.access is shown.")
@click.pass_context
def command(ctx: click.Context, name: str | None, config_file: Path | None) -> None:
    """Show what to do about the alert NAME; without NAME, list the pages.

    A part of the name in any case is enough where only one page has it; else the pages that have it are listed. Where
    site.access says how to reach the device, that comes first.

    \b
    Example:
      omniwatch runbook CodecDrift
    """
    from omniwatch.bundle import data
    from omniwatch.system.closest import closest

    pages = {path.stem: path for path in sorted((data.root() / "runbooks").glob("*.md"))}
    if name is None:
        click.echo("\n".join(pages))
        return
    wanted = name.removesuffix(".md").lower()
    found = [page for page in pages if page.lower() == wanted] or [
        page for page in pages if wanted in page.lower()
    ]
    if len(found) > 1:
        raise UserError(f'"{name}" may be {", ".join(found)}')
    if not found:
        close = closest(wanted, pages)
        hint = f'the closest is "{close}"' if close else "`omniwatch runbook` lists all"
        raise UserError(f'no runbook "{name}"; {hint}')
    access = _access(config_file, is_asked=is_given(ctx))
    text = pages[found[0]].read_text(encoding="utf-8")
    click.echo_via_pager(f"The device: {access}\n\n{text}" if access else text)


def _access(config_file: Path | None, *, is_asked: bool) -> str:
    """Return how the device is reached. Settings that do not hold keep nobody from a runbook, unless they were asked for."""
    from omniwatch.settings import SettingsError, load

    try:
        return load(config_file).site.access
    except SettingsError:
        if is_asked:
            raise
        return ""
