"""Check a rendered bundle: rules, their unit tests, runbooks, configuration."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from omniwatch.cli import UserError, config_option, os_error


@click.command()
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@config_option("The omniwatch.yaml to render with when no DIR is given.")
@click.option(
    "--vllm",
    metavar="PROGRAM",
    help="An installed vllm-omni: also check that it knows every flag of the settings' server.profile.",
)
@click.pass_context
def command(ctx: click.Context, directory: Path | None, config_file: Path | None, vllm: str | None) -> None:
    """Check what `omniwatch render --out DIR` wrote; without DIR, what it would write.

    promtool checks the rules, runs their unit tests and checks Prometheus' configuration; amtool checks Alertmanager's. A
    tool that is not installed is said and is no failure. Then, with or without tools: every alert has a severity, a
    summary, a description, a unit test in which it fires and one in which it is silent, and a runbook page that its
    runbook_url names, with every section filled; no page is without its alert. Every dashboard keeps the rules of Grafana's
    dashboard-linter, and its links lead somewhere.

    With --vllm the program is asked for its flags, and each that the model server's profile uses and it does not know is
    named with the closest real one.

    One line a check. Exit code as promtool's: 0 when all is well, 1 when something failed, 3 when there is only lint.

    \b
    Example:
      omniwatch check --config.file omniwatch.yaml
      omniwatch check --vllm /opt/vllm-omni/bin/vllm-omni
    """
    from omniwatch import settings
    from omniwatch.bundle import check, profiles, render

    if directory and config_file:
        raise click.UsageError("DIR is rendered already: give it or --config.file, not both.")
    try:
        if directory:
            results = check.check(directory)
        else:
            results = check.check_files(render.render(settings.load(config_file)))
        if vllm:
            profile = profiles.load(settings.load(config_file).server.profile)
            faults = profiles.unknown(profile, *profiles.ask(_program(vllm)))
            results += [check.Result(check.Status.FAILED, "vLLM", profile.name, fault) for fault in faults]
            if not faults:
                results.append(check.Result(check.Status.OK, "vLLM", profile.name))
    except (settings.SettingsError, render.RenderError, profiles.ProfileError) as error:
        raise UserError(str(error)) from error
    except OSError as error:
        raise os_error(error) from error
    for result in results:
        click.echo(str(result))
    ctx.exit(check.exit_code(results))


def _program(name: str) -> Path:
    """Where a program is that is named as a shell would: without a slash it is looked for in PATH."""
    return Path(name).absolute() if "/" in name else Path(shutil.which(name) or name)
