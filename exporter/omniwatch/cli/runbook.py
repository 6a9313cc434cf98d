"""Show the runbook page of an alert."""

from __future__ import annotations

import click

from omniwatch.cli import UserError


@click.command()
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """Show what to do about the alert NAME; without NAME, list the pages.

    A part of the name in any case is enough where only one page has it; else the pages that have it are listed.

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
        raise UserError(f'no runbook "{name}"; the closest is "{closest(wanted, pages)}"')
    click.echo_via_pager(pages[found[0]].read_text(encoding="utf-8"))
