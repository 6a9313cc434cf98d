"""Check a rendered bundle: rules, configuration, links, delivery."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from omniwatch.cli import config_option, os_error, shows_progress
from omniwatch.system.errors import UserError


@click.command()
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@config_option("The omniwatch.yaml to render with when no DIR is given.")
@click.option(
    "--vllm",
    metavar="PROGRAM",
    help="An installed vllm-omni: also check that it knows every flag of the settings' server.profile.",
)
@click.option(
    "--unit-tests",
    is_flag=True,
    help="Also run the unit tests of the rules, half a minute of CPU: worth it where templates or thresholds were changed.",
)
@click.option("-v", "--verbose", is_flag=True, help="Print every check, those that passed too.")
@click.pass_context
def command(
    ctx: click.Context,
    directory: Path | None,
    config_file: Path | None,
    vllm: str | None,
    unit_tests: bool,
    verbose: bool,
) -> None:
    """Check what `omniwatch render --out DIR` wrote; without DIR, what it would write.

    Every YAML and JSON file is parsed. promtool checks the rules, the queries of the dashboards and Prometheus' configuration, and with
    --unit-tests runs the unit tests of the rules; amtool checks Alertmanager's, vmalert and vmagent the files of a fleet. A tool
    that is missing is named and is not a failure. The links of alerts and panels have to lead to a dashboard, a panel and a runbook
    page of the same bundle. How a rule, a dashboard or a runbook page is written is not judged.

    With --config.file also: a person is told of a page, somewhere else than on this device; every robot gets what it takes; a dead
    man's switch watches this device; one Alertmanager notifies.

    With --vllm the program is asked for its flags, and each that the model server's profile uses and it does not know is
    named with the closest real one.

    Prints what fails, a line each, and one line that sums up. Exit code as promtool's: 0 when all is well, 1 when something
    failed, 3 when there is only lint.

    \b
    Example:
      omniwatch check --config.file omniwatch.yaml
      omniwatch check --unit-tests
      omniwatch check --vllm /opt/vllm-omni/bin/vllm-omni
    """
    from omniwatch import settings
    from omniwatch.bundle import check, profiles, render

    if directory and config_file:
        raise click.UsageError("DIR is rendered already: give it or --config.file, not both.")
    try:
        site = settings.load(config_file)
        program = _program(vllm) if vllm else None
        profile = profiles.load(site.server.profile)
        if directory:
            next(directory.iterdir(), None)
        files = None if directory else render.render(site)
        with ThreadPoolExecutor(1) as beside:
            asked = beside.submit(profiles.ask, program) if program else None
            if directory:
                results = check.check(directory, unit_tests=unit_tests, progress=_tell)
            else:
                results = check.check_files(files or {}, unit_tests=unit_tests, progress=_tell)
                results += check.check_delivery(site) if config_file else []
            if asked is not None:
                faults = profiles.unknown(profile, *asked.result())
                results += [
                    check.Result(check.Status.FAILED, "vLLM", profile.name, fault) for fault in faults
                ] or [check.Result(check.Status.OK, "vLLM", profile.name)]
    except OSError as error:
        raise os_error(error) from error
    quiet = () if verbose else (check.Status.OK, check.Status.ABSENT)
    for result in results:
        if result.status not in quiet:
            click.echo(str(result))
    click.echo(check.summary(results))
    ctx.exit(check.exit_code(results))


def _program(name: str) -> Path:
    """Return where a program is that is named as a shell would: without a slash it is looked for in PATH."""
    path = Path(name).absolute() if "/" in name else Path(shutil.which(name) or name)
    if "/" not in str(path) or not path.exists():
        raise UserError(f"{name}: No such file or directory")
    return path


def _tell(done: int, of: int) -> None:
    """Show on a terminal how many of the tools have ended."""
    if shows_progress():
        click.echo("\r\x1b[K" if done == of else f"\r{done} of {of} tools", nl=False, err=True)
