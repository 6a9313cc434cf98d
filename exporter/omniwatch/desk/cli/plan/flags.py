"""The form --flags: a script that starts vLLM-Omni as planned."""

from __future__ import annotations

from pathlib import Path

import click

from omniwatch.bundle import profiles
from omniwatch.desk.cli.plan.output import print_json
from omniwatch.desk.plan import flags
from omniwatch.desk.plan.model import PlanError
from omniwatch.desk.plan.planning import Plan


def print_flags(plan: Plan, checkpoint: Path | None, vllm: str | None, *, as_json: bool) -> None:
    """Print the script, or why there is none. Raises PlanError for a flag that the program `vllm` does not know."""
    if not plan.result.fits:
        click.echo(f"Error: {flags.too_much(plan.result)}", err=True)
        return
    where = str(checkpoint.resolve()) if checkpoint else "/opt/qwen3-omni"
    program = profiles.program(vllm)
    found = flags.flags(plan.result, where, str(program or profiles.VLLM_OMNI))
    if program is not None:
        strange = profiles.unknown_words(found.command, profiles.ask(program)[0])
        if strange:
            raise PlanError(strange[0])
        click.echo(f"{program} knows every flag", err=True)
    if as_json:
        print_json({"schema": 1, "flags": found})
    else:
        click.echo(flags.as_script(found), nl=False)
