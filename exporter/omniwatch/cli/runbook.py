"""Show the runbook page of an alert."""

from __future__ import annotations

import click

from omniwatch.cli import UserError


@click.command()
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """Show what to do about the alert NAME; without NAME, list the pages.

    The name need not be whole, nor in its own case, as long as it is plain which is meant.

    \b
    Example:
      omniwatch runbook CodecDrift
    """
    import difflib

    from omniwatch.bundle import data

    pages = {path.stem: path for path in sorted((data.root() / "runbooks").glob("*.md"))}
    if name is None:
        click.echo("\n".join(pages))
        return
    wanted = name.removesuffix(".md").lower()
    found = [page for page in pages if page.lower() == wanted] or [
        page for page in pages if page.lower().startswith(wanted)
    ]
    if len(found) > 1:
        raise UserError(f'"{name}" may be {", ".join(found)}')
    if not found:
        by_lower = {page.lower(): page for page in pages}
        close = difflib.get_close_matches(wanted, by_lower, n=1, cutoff=0)
        hint = f'; the closest is "{by_lower[close[0]]}"' if close else ""
        raise UserError(f'no runbook "{name}"{hint}')
    click.echo_via_pager(pages[found[0]].read_text(encoding="utf-8"))
