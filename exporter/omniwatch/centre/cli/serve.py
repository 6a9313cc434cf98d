"""Serve a fleet file's targets for http_sd_configs of Prometheus or vmagent."""

from __future__ import annotations

from pathlib import Path

import click

from omniwatch.cli import os_error, web_options
from omniwatch.system import ports


@click.command()
@click.argument("fleet_file", metavar="FLEET", type=click.Path(path_type=Path))
@web_options(f"127.0.0.1:{ports.FLEET}")
@click.option(
    "--web.host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name by which /targets is asked for, beside addresses, localhost and the host's own; may be given more than once.",
)
def command(
    fleet_file: Path, listen: tuple[str, ...], web_config: Path | None, hosts: tuple[str, ...]
) -> None:
    """Serve the fleet file FLEET's targets at /targets, for http_sd_configs of Prometheus or vmagent.

    FLEET is read anew when it changes. What does not hold is said in the log, at /-/ready and in /metrics, and the targets
    stay as they were.

    \b
    Example:
      omniwatch fleet serve fleet.yaml --web.listen-address 127.0.0.1:9844
    """
    import logging
    import signal
    import threading
    import time

    from prometheus_client import CollectorRegistry

    from omniwatch.centre.discovery import Catalogue, make_app
    from omniwatch.system import log
    from omniwatch.web.server import serve as listening

    try:
        log.setup("info", "logfmt")
        catalogue = Catalogue(fleet_file, time.time)
        registry = CollectorRegistry()
        app = make_app(catalogue, hosts, registry)
        server = listening(listen, app, web_config, registry=registry)
    except OSError as error:
        raise os_error(error) from error
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    signal.signal(signal.SIGINT, lambda number, frame: stop.set())
    fields = {"targets": " ".join(f"{url}targets" for url in server.urls), "file": str(fleet_file)}
    logging.getLogger("omniwatch").info("listening", extra={"fields": fields})
    with server:
        stop.wait()
