"""Render the bundle as objects of Kubernetes and of the Prometheus operator, and check what was rendered."""

from __future__ import annotations

import click

from omniwatch.bundle import delivery, render
from omniwatch.bundle.check import Result
from omniwatch.bundle.render import Files
from omniwatch.desk.kubernetes import check, files
from omniwatch.settings import Settings

check_folder = check.check_folder


def rendered(settings: Settings, names: tuple[str, ...] = ()) -> tuple[Files, list[Result]]:
    """Render what is named, or all, and check all of it. Warn where a page would reach nobody. Raises UserError."""
    everything = files.render_all(settings)
    results = check.check_files(everything)
    if not delivery.notified(files.of_a_cluster(settings), "page"):
        told = "receivers: nobody is told of a page; set receivers.page or receivers.page_webhook_url"
        click.echo(f"warning: {told}", err=True)
    chosen = render.select(list(everything), names) if names else list(everything)
    return {path: everything[path] for path in chosen}, results
