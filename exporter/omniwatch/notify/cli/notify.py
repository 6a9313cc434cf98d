"""Carry alerts from Alertmanager to DingTalk, Feishu and WeCom robots."""

from __future__ import annotations

from pathlib import Path

import click

from omniwatch.cli import config_option, os_error, web_config_option
from omniwatch.system.errors import UserError


@click.command()
@config_option("The omniwatch.yaml whose group `notify` names the robots.")
@click.option(
    "--state-dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Keeps undelivered messages over a restart; created if missing. Without it, a restart loses them.",
)
@web_config_option
@click.option("--log.level", "level", type=click.Choice(["debug", "info", "warn", "error"]), default="info")
@click.option("--log.format", "form", type=click.Choice(["logfmt", "json"]), default="logfmt")
def command(
    config_file: Path | None, state_dir: Path | None, web_config: Path | None, level: str, form: str
) -> None:
    """Take Alertmanager's webhooks (POST /page, /ticket) and send each group's message to the robots of chat groups.

    Messages are signed, tried again with growing pauses, at most 20 a minute to a robot, those that overflow merged into one.
    Addresses and secrets are in the files that `notify.robots` names. /metrics says what became of them.

    \b
    Example:
      omniwatch notify --config.file omniwatch.yaml --state-dir /var/lib/omniwatch-notify
    """
    import signal
    import threading

    from omniwatch import settings
    from omniwatch.notify.webhook_server import WebhookServer
    from omniwatch.sidecar import state_lock
    from omniwatch.system import log

    try:
        loaded = settings.load(config_file)
        notify = loaded.notify
        if not notify.robots:
            raise UserError("notify.robots: names no robot; give --config.file a file that does")
        log.setup(level, form)
        if state_dir is not None:
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            state_lock.hold(state_dir)
        bridge = WebhookServer(
            notify,
            notify.zone,
            state_dir,
            web_config=web_config,
            hosts=(loaded.site.device, *loaded.site.hosts),
        )
    except OSError as error:
        raise os_error(error) from error
    asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.set())
    click.echo(f"listening on {bridge.address}", err=True)
    asked.wait()
    bridge.stop()
