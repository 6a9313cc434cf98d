"""Check a rendered bundle: rules, configuration, links, delivery."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from omniwatch.cli import hear_verbose, is_given, of_desk, os_error, settings_option, shows_progress
from omniwatch.system.errors import UserError
from omniwatch.system.terminal import escaped

KUSTOMIZATION = "base/kustomization.yaml"
"""In a folder of `omniwatch render --kubernetes`."""


@click.command()
@click.argument("directory", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@settings_option("The omniwatch.yaml to render with when no DIR is given.")
@click.option("--centre", is_flag=True, help="What is checked is for the centre of a fleet.")
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
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    is_eager=True,
    callback=hear_verbose,
    help="Print every check, those that passed too, and say which configuration file is read.",
)
@click.pass_context
def command(
    ctx: click.Context,
    directory: Path | None,
    config_file: Path | None,
    centre: bool,
    vllm: str | None,
    unit_tests: bool,
    verbose: bool,
) -> None:
    """Check what `omniwatch render --out DIR` wrote; without DIR, what it would write.

    Every YAML and JSON file is parsed. promtool checks the rules, the queries of the dashboards and Prometheus'
    configuration; with --unit-tests it also runs the unit tests of the rules. amtool checks Alertmanager's configuration,
    vmalert and vmagent the files of a fleet. A tool that is missing is named and is not a failure. Each tool is asked what it
    knows. Where a site uses what its tool is too old for, a line says what is needed, and the check has failed. The links of
    alerts and panels have to lead to a dashboard, a panel and a runbook page of the same bundle. DIR is the root of the links in
    it. How a rule, a dashboard or a runbook page is written is not judged. A folder of `omniwatch render --kubernetes` is known by its
    base; --unit-tests has no effect on it.

    Where there is a configuration file, only what this device uses is judged. No file of a centre is, nor of an agent that
    the device does not have. With --centre only what a centre uses is.

    Where there is a configuration file, the delivery is judged too. A page has to reach a person elsewhere than on this device, and
    every robot has to get what it takes. A dead man's switch has to watch this device, and one Alertmanager has to notify.

    With --vllm the program is asked for its flags. A flag of the model server's profile that it does not know is named with
    the closest real one.

    Prints what fails or is to be noted, a line each, and one line that sums up. Exit code as promtool's: 0 when all is well,
    1 when something failed, 3 when there is only lint.

    \b
    Example:
      omniwatch check
      omniwatch check --config.file omniwatch.yaml --unit-tests
      omniwatch check --vllm /opt/vllm-omni/bin/vllm-omni
    """
    from omniwatch import settings
    from omniwatch.bundle import check, inline_secrets, profiles, render

    if directory and is_given(ctx):
        raise click.UsageError("DIR is rendered already: give it or --config.file, not both.")
    try:
        site = settings.load(None if directory and not vllm else config_file)
        program = profiles.program(vllm) if vllm else None
        if program and ("/" not in str(program) or not program.exists()):
            raise UserError(f"{vllm}: No such file or directory")
        profile = profiles.load(site.server.profile)
        files = None if directory else inline_secrets.checked(render.render(site), site)
        with ThreadPoolExecutor(1) as beside:
            asked = beside.submit(profiles.ask, program) if program else None
            # Without settings nothing tells whose files these are: what an installed tool is too old for may be another's.
            is_known = centre or (config_file is not None and directory is None)
            unused = check.unused(site, centre=centre) if is_known else ()
            needed = check.NEEDS if is_known else ("alertmanager",)
            if directory and (directory / KUSTOMIZATION).is_file():
                results = of_desk("kubernetes", "check of objects of Kubernetes").check_folder(directory)
            elif directory:
                results = check.check(
                    directory, unit_tests=unit_tests, unused=unused, needed=needed, progress=_tell
                )
            else:
                results = check.check_files(
                    files or {}, unit_tests=unit_tests, unused=unused, needed=needed, progress=_tell
                )
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
            click.echo(escaped(str(result)))
    click.echo(check.summary(results))
    ctx.exit(check.exit_code(results))


def _tell(done: int, of: int) -> None:
    """Show on a terminal how many of the tools have ended."""
    if shows_progress():
        click.echo("\r\x1b[K" if done == of else f"\r{done} of {of} tools", nl=False, err=True)
