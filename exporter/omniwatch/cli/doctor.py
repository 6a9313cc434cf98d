"""Gather evidence on this device in one file, without secrets."""

from __future__ import annotations

from pathlib import Path

import click

from omniwatch.cli import config_option, shows_progress
from omniwatch.system.errors import UserError

WEB_CONFIGS = ("/etc/omniwatch/web.yml", "/etc/omniwatch/web.yaml")


@click.command()
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where the bundle goes. [default: omniwatch-doctor-DEVICE-TIME.tar.gz here]",
)
@config_option("The device's omniwatch.yaml.")
@click.option(
    "--web.config.file",
    "web_config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help=f"The sidecar's web configuration. [default: {WEB_CONFIGS[0]} if it is there]",
)
@click.option(
    "--prometheus.url",
    "prometheus",
    metavar="URL",
    help="Where Prometheus answers. [default: the settings' grafana.prometheus_url]",
)
@click.option(
    "--lines",
    type=click.IntRange(1, 100_000),
    default=500,
    show_default=True,
    help="Number of journal entries, and of events.",
)
@click.option(
    "--since",
    metavar="TIME",
    default="-1h",
    show_default=True,
    help="Journal entries from then on, as journalctl takes it.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be gathered, and gather nothing.")
def command(
    out: Path | None,
    config_file: Path | None,
    web_config: Path | None,
    prometheus: str | None,
    lines: int,
    since: str,
    dry_run: bool,
) -> None:
    """Gather configuration, versions, events, journals, the readers' and servers' metrics, alerts, disk and clock in a tar.gz.

    Its first file, SUMMARY.md, says what is wrong at a glance and what could not be read. Passwords, tokens, webhook
    addresses, hashes, the text of users and clients' ids are left out everywhere. Clients' addresses are left out where a
    port follows, as in the server's log. Nothing is sent anywhere.

    Run it as root or as a member of systemd-journal and omniwatch: the summary lists what could not be read. The exit code
    is 0 when the file is written, whatever it says, and 2 when it cannot be written.

    \b
    Example:
      sudo omniwatch doctor
      omniwatch doctor --dry-run
      sudo omniwatch doctor --since -2h --out /tmp/evidence.tar.gz
    """
    import os
    import time

    from omniwatch.doctor import bundle, summary
    from omniwatch.doctor.device import DeviceAccess
    from omniwatch.settings import Settings, SettingsError, load

    for given in (config_file, web_config):
        if given is not None and not given.exists():
            raise UserError(f"{given}: No such file or directory")
    odd = ""
    try:
        settings = load(config_file)
    except SettingsError:
        settings, odd = (
            Settings(),
            f"{config_file} does not hold: the defaults' addresses and units are looked at",
        )
    device = DeviceAccess(
        settings,
        config=config_file,
        web_config=web_config or _first(WEB_CONFIGS),
        prometheus=prometheus or settings.grafana.prometheus_url,
        lines=lines,
        since=since,
        environment=os.environ,
    )
    if dry_run:
        for part in bundle.PARTS:
            click.echo(f"{part.name:<14}{part.about}")
        return
    t = time.time()
    safe = "".join(sign if sign.isalnum() or sign in "-_." else "-" for sign in settings.site.device)
    target = out or Path(f"omniwatch-doctor-{safe}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(t))}.tar.gz")
    evidence = bundle.gather(device, lambda part: _progress(part.name))
    _progress("")
    if odd:
        evidence.missing["settings"] = odd
    page = summary.write(evidence, settings.site.device, t)
    try:
        bundle.write(evidence, page, target, t)
    except OSError as error:
        raise UserError(f"{target}: {error.strerror}") from error
    click.echo(f"wrote {target}: {len(evidence.files) + 1} files, {target.stat().st_size} bytes")
    for line in page.partition("## What is wrong\n\n")[2].partition("\n\n## What could")[0].splitlines():
        click.echo(line)
    for name, why in evidence.missing.items():
        click.echo(f"not had: {name}: {why}", err=True)


def _first(names: tuple[str, ...]) -> Path | None:
    return next((Path(name) for name in names if Path(name).exists()), None)


def _progress(name: str) -> None:
    """Show on a terminal what is being gathered; "" ends it."""
    if shows_progress():
        click.echo(f"\r\x1b[K{name}", nl=False, err=True)
