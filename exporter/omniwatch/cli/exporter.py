"""Run the sidecar: follow a server's events and serve both curves at /metrics."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import time
from pathlib import Path

import click

from omniwatch import __version__
from omniwatch.cli import config_option, os_error, web_options
from omniwatch.system.log import FORMATS, LEVELS


@click.command()
@click.argument("sources", nargs=-1, metavar="[SOURCE]...")
@config_option("The device's omniwatch.yaml.")
@click.option(
    "--config.check", "config_check", is_flag=True, help="Check the configuration and exit: 0 good, 2 bad."
)
@web_options("site.exporter of the settings", of_settings=True)
@click.option(
    "--web.telemetry-path",
    "telemetry_path",
    default="/metrics",
    show_default=True,
    help="Where the metrics are.",
)
@click.option(
    "--state-dir",
    type=click.Path(path_type=Path),
    envvar="STATE_DIRECTORY",
    help="Keeps counters and positions over restarts; without it, they start over. [default: $STATE_DIRECTORY]",
)
@click.option(
    "--runtime-dir",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="RUNTIME_DIRECTORY",
    help="Keeps samples of the device, device.jsonl; without it, in memory alone. [default: $RUNTIME_DIRECTORY]",
)
@click.option("--log.level", "log_level", type=click.Choice(LEVELS), default="info", show_default=True)
@click.option("--log.format", "log_format", type=click.Choice(FORMATS), default="logfmt", show_default=True)
def command(
    sources: tuple[str, ...],
    config_file: Path | None,
    config_check: bool,
    listen: tuple[str, ...],
    web_config: Path | None,
    telemetry_path: str,
    state_dir: Path | None,
    runtime_dir: Path | None,
    log_level: str,
    log_format: str,
) -> None:
    """Follow each SOURCE and serve its metrics.

    A SOURCE is tail:PATH, tail:GLOB, journal:UNIT, - for standard input, or a plain path. Without one, the settings'
    `sources` are followed: tail:/run/omniwatch/events.jsonl. A source that does not exist yet is waited for.

    \b
    Example:
      omniwatch exporter tail:/run/omniwatch/events.jsonl --state-dir /var/lib/omniwatch
      omniwatch exporter journal:qwen3-omni.service --web.listen-address :9842
      zcat incident.jsonl.gz | omniwatch exporter -
    """
    from prometheus_client import CollectorRegistry, ProcessCollector

    from omniwatch import host
    from omniwatch.bundle import data
    from omniwatch.host.certificates import Certificates, of_settings
    from omniwatch.host.sample import Sampler
    from omniwatch.settings import Settings, digest, load
    from omniwatch.sidecar import device_log, mounts, state_lock
    from omniwatch.sidecar.loop import Sidecar, in_directory
    from omniwatch.sources import Source
    from omniwatch.sources.spec import open_source
    from omniwatch.system import log, sdnotify
    from omniwatch.system.sysfs import read_text
    from omniwatch.web import Pages, make_app
    from omniwatch.web.config import Served, WatchedConfig
    from omniwatch.web.server import serve

    def load_all() -> tuple[Settings, list[Source]]:
        settings = load(config_file)
        return settings, [open_source(spec) for spec in dict.fromkeys(sources or settings.sources)]

    def certificates(settings: Settings) -> Certificates:
        return Certificates(of_settings(settings), web.expires if web else dict)

    try:
        settings, opened = load_all()
        web = WatchedConfig(web_config) if web_config is not None else None
        if config_check:
            click.echo(f"{config_file or 'the defaults'}: the configuration is good")
            return
        log.setup(log_level, log_format)
        if mounts.IN_IMAGE in os.environ:
            specs = sources or settings.sources
            mounts.refuse(specs)
            if state_dir is not None and not os.access(state_dir, os.W_OK | os.X_OK):
                state_dir = None
            for line in mounts.missing(specs, state_dir):
                logging.getLogger("omniwatch").warning("not mounted: %s", line)
        state_file = None if state_dir is None else in_directory(state_dir)
        if state_dir is not None:
            state_lock.hold(state_dir)
        sidecar = Sidecar(
            settings,
            opened,
            state_file=state_file,
            boot=read_text("/proc/sys/kernel/random/boot_id") or "",
            load_settings=load_all,
            host=lambda settings: (
                host.Host({**host.discover(settings), "certificates": certificates(settings)}).collect
            ),
            sampler=Sampler,
            device_file=None if runtime_dir is None else runtime_dir / device_log.NAME,
        )
        registry = CollectorRegistry()
        registry.register(sidecar)
        if web is not None:
            registry.register(Served(web, certificates=False))
        ProcessCollector(registry=registry)
        pages = Pages(
            registry,
            sidecar.streams,
            sidecar.turns,
            sidecar.turn,
            sidecar.live,
            sidecar.ready,
            sidecar.healthy,
            sidecar.reload,
            telemetry_path,
            hosts=lambda: (sidecar.table.settings.site.device, *sidecar.table.settings.site.hosts),
            digest=lambda: digest(sidecar.table.settings),
            runbooks=data.root() / "runbooks",
        )
        server = serve(listen or [settings.site.exporter], make_app(pages), web)
    except OSError as error:
        raise os_error(error) from error

    stop, reload_asked = threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    signal.signal(signal.SIGINT, lambda number, frame: stop.set())
    signal.signal(signal.SIGHUP, lambda number, frame: reload_asked.set())
    watchdog_s = sdnotify.watchdog_interval(os.environ)
    watchdog_t = 0.0

    def each_round() -> None:
        nonlocal watchdog_t
        if reload_asked.is_set():
            reload_asked.clear()
            sdnotify.notify(sdnotify.reloading(time.monotonic()), os.environ)
            sidecar.reload()
            sdnotify.notify(sdnotify.READY, os.environ)
        if watchdog_s is not None and time.monotonic() >= watchdog_t:
            watchdog_t = time.monotonic() + watchdog_s
            sdnotify.notify(sdnotify.WATCHDOG, os.environ)

    # Objects made so far stay. Later ones are freed by reference counts; few need the collector.
    gc.freeze()
    gc.set_threshold(50_000)
    logger = logging.getLogger("omniwatch")
    logger.info("listening", extra={"fields": {"address": " ".join(server.urls), "version": __version__}})
    for intake in sidecar.intakes:
        logger.info("following", extra={"fields": {"source": intake.name}})
    sdnotify.notify(sdnotify.READY, os.environ)
    try:
        sidecar.run(stop, each_round)
    finally:
        sdnotify.notify(sdnotify.STOPPING, os.environ)
        server.close()
        sidecar.close()
