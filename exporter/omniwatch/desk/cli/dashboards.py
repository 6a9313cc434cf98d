"""Push the dashboards to Grafana, show how they differ, fetch them, draw them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omniwatch.cli import config_option, os_error
from omniwatch.system import user_file
from omniwatch.system.errors import UserError

if TYPE_CHECKING:
    from omniwatch.desk.grafana import Grafana, Model
    from omniwatch.settings import Settings

TOKEN_VARIABLE = "GRAFANA_TOKEN"


def _common(function: Callable[..., Any]) -> Callable[..., Any]:
    options = (
        click.argument("names", metavar="[NAME]...", nargs=-1),
        config_option("The site's omniwatch.yaml: thresholds, and grafana.url and grafana.folder."),
        click.option("--url", metavar="URL", help="Grafana's address, instead of grafana.url."),
        click.option(
            "--token-file",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help=f"Holds a service account's token. Default: the environment's {TOKEN_VARIABLE}.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.group()
def command() -> None:
    """Keep a running Grafana's dashboards as the bundle has them, or draw them without one.

    NAME is a dashboard's name (streaming) or uid (omni-streaming); without one, all are meant. A Grafana that reads its
    dashboards from files needs none of this: see deploy/grafana/provisioning of what `omniwatch render` writes.

    \b
    Example:
      omniwatch dashboards push --token-file /etc/omniwatch/grafana.token --dry-run
      omniwatch dashboards diff streaming
    """


@command.command()
@_common
@click.option(
    "--folder", metavar="TITLE", help="The folder, instead of grafana.folder; made when it is not there."
)
@click.option("--dry-run", is_flag=True, help="Say what would be done and do nothing.")
@click.option("--force", is_flag=True, help="Overwrite what was changed by hand, too.")
@click.pass_context
def push(
    ctx: click.Context,
    names: tuple[str, ...],
    config_file: Path | None,
    url: str | None,
    token_file: Path | None,
    folder: str | None,
    dry_run: bool,
    force: bool,
) -> None:
    """Write the dashboards to Grafana, one line each.

    A dashboard that was changed there by hand since the last push is left alone (exit code 1). Fetch it with pull, take what
    is wanted into the template, then push with --force.

    \b
    Example:
      omniwatch dashboards push --url https://grafana.example.org --token-file token
    """
    with _errors():
        settings, models, grafana = _open(names, config_file, url, token_file)
        title = folder or settings.grafana.folder
        place = grafana.folder(title)
        if not place.uid:
            click.echo(f"{'would create' if dry_run else 'create'}: folder {title}")
            if not dry_run:
                place = grafana.make_folder(title)
        refused = False
        for model in models.values():
            done = grafana.push(model, place, force=force, dry_run=dry_run)
            changes = done.action in ("create", "update")
            line = f"{'would ' if dry_run and changes else ''}{done.action}: {model['uid']}"
            click.echo(f"{line}: {done.reason}" if done.reason else line)
            refused = refused or done.action == "refused"
    ctx.exit(1 if refused else 0)


@command.command()
@_common
@click.pass_context
def diff(
    ctx: click.Context,
    names: tuple[str, ...],
    config_file: Path | None,
    url: str | None,
    token_file: Path | None,
) -> None:
    """Print how the dashboards in Grafana differ from the bundle's; exit code 1 when they do.

    \b
    Example:
      omniwatch dashboards diff streaming --token-file token
    """
    with _errors():
        from omniwatch.desk import grafana as api

        _, models, grafana = _open(names, config_file, url, token_file)
        text = "".join(api.diff(grafana.held(model), model) for model in models.values())
    click.echo(text, nl=False)
    ctx.exit(1 if text else 0)


@command.command()
@_common
@click.option(
    "--out", metavar="DIR", required=True, type=click.Path(path_type=Path), help="Where the files go."
)
@click.option("--dry-run", is_flag=True, help="Say what would be written and write nothing.")
def pull(
    names: tuple[str, ...],
    config_file: Path | None,
    url: str | None,
    token_file: Path | None,
    out: Path,
    dry_run: bool,
) -> None:
    """Fetch the dashboards from Grafana into DIR/NAME.json, as they are there, hand edits included.

    \b
    Example:
      omniwatch dashboards pull streaming --out edited --token-file token
    """
    from pathlib import PurePosixPath

    from omniwatch.bundle import render
    from omniwatch.bundle.dashboards import dump

    with _errors():
        from omniwatch.desk import grafana as api

        _, models, grafana = _open(names, config_file, url, token_file)
        held = {name: grafana.held(model).model for name, model in models.items()}
        files = {
            PurePosixPath(f"{name}.json"): dump(api.plain(model)) for name, model in held.items() if model
        }
        pending = render.changed(files, out) if dry_run else render.write(files, out)
    for name, model in held.items():
        path = PurePosixPath(f"{name}.json")
        verb = "absent" if model is None else "unchanged"
        if path in pending:
            verb = "would write" if dry_run else "wrote"
        click.echo(f"{verb}: {out / path}")


@command.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@config_option("The site's omniwatch.yaml.")
@click.option(
    "--prometheus.url",
    "url",
    metavar="URL",
    help="Instead of grafana.prometheus_url.",
)
@click.option(
    "--last", default="30m", show_default=True, metavar="TIME", help="How long before the end it begins."
)
@click.option(
    "--start", metavar="TIME", help="Instead of --last: seconds since the epoch, or 2026-01-31T12:00:00Z."
)
@click.option("--end", metavar="TIME", help="The same; default now.")
@click.option(
    "--var", "chosen", metavar="NAME=VALUE", multiple=True, help="Draw these only; repeatable. Default all."
)
@click.option("--format", "suffix", type=click.Choice(["svg", "png"]), default="svg", show_default=True)
@click.option(
    "--out",
    metavar="DIR|FILE",
    required=True,
    type=click.Path(path_type=Path),
    help="Where NAME.svg goes; or, for one dashboard, a FILE that ends in .svg or .png.",
)
def draw(
    names: tuple[str, ...],
    config_file: Path | None,
    url: str | None,
    last: str,
    start: str | None,
    end: str | None,
    chosen: tuple[str, ...],
    suffix: str,
    out: Path,
) -> None:
    """Draw dashboards as pictures, from the same queries, without a Grafana. Times are UTC. Needs omniwatch[plot].

    \b
    Example:
      omniwatch dashboards draw streaming --last 1h --var device=orin --out streaming.png
      omniwatch dashboards draw --prometheus.url http://prometheus:9090 --out pictures
    """
    import time

    from omniwatch import settings

    with _errors():
        from omniwatch.desk.draw import arguments

        window = arguments.window(start, end, last, time.time())
        site = settings.load(config_file)
        models = arguments.targets(_models(site, names), out, suffix)
        from omniwatch.desk.draw import run

        scrape_s = site.alerts.scrape_interval_s
        address = url or site.grafana.prometheus_url
        for path in run.draw(models, address, window, arguments.choices(chosen), scrape_s):
            click.echo(f"drawn: {path}")


def _open(
    names: tuple[str, ...], config_file: Path | None, url: str | None, token_file: Path | None
) -> tuple[Settings, dict[str, Model], Grafana]:
    from omniwatch import settings
    from omniwatch.desk.grafana import Grafana

    site = settings.load(config_file)
    address = url or site.grafana.api
    if not address.startswith(("http://", "https://")):
        raise UserError(f'--url: expected http://… or https://…, got "{address}"')
    return site, _models(site, names), Grafana(address, _token(token_file))


def _models(site: Settings, names: tuple[str, ...]) -> dict[str, Model]:
    """Return the rendered dashboards that are meant, by name."""
    import json

    from omniwatch.bundle import render

    rendered = render.render(site, only=[path for path in render.paths() if path.parts[0] == "dashboards"])
    models = {path.stem: json.loads(text) for path, text in rendered.items()}
    by_uid = {model["uid"]: name for name, model in models.items()}
    wanted = [by_uid.get(name, name) for name in names]
    for name in wanted:
        if name not in models:
            raise UserError(f'no dashboard "{name}"; there are {", ".join(models)}')
    return {name: models[name] for name in models if not names or name in wanted}


def _token(token_file: Path | None) -> str:
    if token_file is None:
        token = os.environ.get(TOKEN_VARIABLE, "").strip()
        if not token:
            raise UserError(f"no token: give --token-file FILE or set {TOKEN_VARIABLE}")
        return token
    token = user_file.read_text(token_file).strip()
    if not token or len(token.split()) != 1:
        raise UserError(f"{token_file}: expected a token, alone, on one line")
    return token


@contextmanager
def _errors() -> Iterator[None]:
    """Turn what the user can mend into one line."""
    try:
        yield
    except ImportError as error:
        raise UserError(str(error)) from error
    except UnicodeDecodeError as error:
        raise UserError(f"the token is no text: {error.reason}") from error
    except OSError as error:
        raise os_error(error) from error
