"""Check a rendered bundle: with promtool and amtool where they are installed, and for what those do not look at."""

from __future__ import annotations

import enum
import fnmatch
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import yaml

from omniwatch.bundle import dashboard_lint, pairing
from omniwatch.bundle.pairing import RulesFile, TestFile
from omniwatch.bundle.render import Files, write

TOOL_TIMEOUT_S = 120.0
CENTRES = ("fleet.rules", "centre-pages.rules")
"""Rules that vmalert reads, too."""
Find = Callable[[str], str | None]
"""Where a tool is installed: shutil.which, or a test's own."""


class Status(enum.Enum):
    """What came of a check; the value is the word that a line begins with."""

    OK = "SUCCESS"
    LINT = "LINT"
    FAILED = "FAILED"
    ABSENT = "SKIPPED"


class Result(msgspec.Struct, frozen=True):
    """One check: the first line of `detail` says what was wrong, the others are a tool's own words."""

    status: Status
    check: str
    subject: str
    detail: str = ""

    def __str__(self) -> str:
        first, *rest = self.detail.splitlines() or [""]
        line = f"{self.status.value}: {self.check}: {self.subject}" + (f": {first}" if first else "")
        return "\n".join([line, *(f"  {text}" for text in rest)])


def check(directory: Path, find: Find = shutil.which, *, unit_tests: bool = True) -> list[Result]:
    """Check what `omniwatch render --out` wrote to `directory`. What is wrong is in the results; raises OSError.

    The rules' unit tests take seconds; without them all is checked that has to hold for a file to be of use.
    """
    next(directory.iterdir(), None)  # glob() takes a directory that cannot be read for an empty one
    rules = sorted(directory.glob("alerts/**/*.rules.yaml"))
    tests = sorted(directory.glob("alerts/**/*.test.yaml"))
    configs = sorted(directory.glob("deploy/**/*.y*ml"))
    more_rules = [path for path in configs if path.name.endswith(".rules.yaml")]
    if not rules:
        return [Result(Status.FAILED, "rules", str(directory), "no alerts/*.rules.yaml here")]
    results: list[Result] = []
    parsed: dict[Path, Any] = {}
    for path in (*rules, *tests, *configs):
        name = str(path.relative_to(directory))
        try:
            parsed[path] = _read(path)
        except (yaml.YAMLError, ValueError) as error:
            results.append(Result(Status.FAILED, "YAML", name, " ".join(str(error).split())))
        else:
            results.append(Result(Status.OK, "YAML", name))
    if exit_code(results):
        return results
    return [
        *results,
        *_tools(directory, [*rules, *more_rules], tests if unit_tests else [], configs, find),
        *_pairs([parsed[path] for path in rules], [parsed[path] for path in tests], directory / "runbooks"),
        *_intervals({path: parsed[path] for path in rules}, {path: parsed[path] for path in tests}),
        *_dashboards(directory, [parsed[path] for path in rules], find),
    ]


def check_files(files: Files, find: Find = shutil.which, *, unit_tests: bool = True) -> list[Result]:
    """Check a rendered bundle before it is anywhere, in a directory made for that. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="omniwatch-") as directory:
        write(files, Path(directory))
        return check(Path(directory), find, unit_tests=unit_tests)


def exit_code(results: Iterable[Result]) -> int:
    """As promtool's: 0 when all is well, 1 when something failed, 3 when there is only lint."""
    found = {result.status for result in results}
    return 1 if Status.FAILED in found else 3 if Status.LINT in found else 0


def _read(path: Path) -> Any:
    """Parse a YAML file, as what its name says it is. Raises YAMLError or ValueError."""
    raw = yaml.safe_load(path.read_bytes())
    if path.name.endswith(".rules.yaml"):
        return msgspec.convert(raw, RulesFile)
    if path.name.endswith(".test.yaml"):
        return msgspec.convert(raw, TestFile)
    return raw


def _tools(
    directory: Path, rules: list[Path], tests: list[Path], configs: list[Path], find: Find
) -> Iterator[Result]:
    def named(*names: str) -> list[Path]:
        return [path for path in configs if path.stem in names]

    allowed = "-remoteWrite.relabelConfig=deploy/fleet/uplink-relabel.yml"
    vmagent = ["-dryRun", "-remoteWrite.url=http://127.0.0.1", allowed, "-promscrape.config={}"]
    commands = [
        ("promtool check rules", ["--lint=all", "--lint-fatal", "{}"], rules),
        ("promtool test rules", ["{}"], tests),
        ("promtool check config", ["{}"], named("prometheus", "centre-prometheus")),
        ("promtool check config", ["--agent", "{}"], named("uplink-prometheus")),
        ("amtool check-config", ["{}"], named("alertmanager", "centre-alertmanager")),
        ("vmagent", vmagent, named("uplink")),
        ("vmalert", ["-dryRun", "-rule={}"], [path for path in rules if path.stem in CENTRES]),
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(
            lambda one: _tool(directory, find, *one),
            [(program, options, path) for program, options, paths in commands for path in paths],
        )


def _tool(directory: Path, find: Find, program: str, options: list[str], path: Path) -> Result:
    name, words = str(path.relative_to(directory)), program.split()
    tool = find(words[0])
    if tool is None:
        return Result(Status.ABSENT, program, name, f"{words[0]} is not installed")
    arguments = [option.format(name) for option in options]
    status, said = _run([tool, *words[1:], *arguments], directory)
    return Result(status, program, name, said)


def _run(command: list[str], directory: Path) -> tuple[Status, str]:
    """Run a tool that says with its exit code how it went: 0 well, 3 lint, else failed. Its words only when not well."""
    try:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Status.FAILED, f"no answer within {TOOL_TIMEOUT_S:.0f} s"
    except OSError as error:
        return Status.FAILED, f"{command[0]}: {error.strerror}"
    if done.returncode == 0:
        return Status.OK, ""
    words = "\n".join(line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip())
    return Status.LINT if done.returncode == 3 else Status.FAILED, f"exit code {done.returncode}\n{words}"


def _pairs(rules: list[RulesFile], tests: list[TestFile], runbooks: Path) -> Iterator[Result]:
    for alert, wrong, style in pairing.of_alerts(rules, tests, runbooks):
        yield from _verdict("alert", alert, wrong, style)
    for page, style in pairing.of_pages(rules, runbooks):
        yield from _verdict("runbook", page, [], style)


def _verdict(check: str, subject: str, wrong: list[str], style: list[str]) -> list[Result]:
    """Return a line for each problem, or the one that says that there is none."""
    found = [(Status.FAILED, problem) for problem in wrong] + [(Status.LINT, problem) for problem in style]
    return [Result(status, check, subject, problem) for status, problem in found or [(Status.OK, "")]]


def _intervals(rules: dict[Path, RulesFile], tests: dict[Path, TestFile]) -> Iterator[Result]:
    """Compare the interval at which promtool evaluates with the groups' own, which it ignores."""
    for path, file in tests.items():
        patterns = [os.path.normpath(path.parent / name) for name in file.rule_files]
        named = [rules[found] for found in rules for name in patterns if fnmatch.fnmatch(str(found), name)]
        groups = [group for found in named for group in found.groups]
        for group in groups:
            if group.interval != file.evaluation_interval:
                detail = (
                    f'group {group.name} every "{group.interval}", tests every "{file.evaluation_interval}"'
                )
                yield Result(Status.LINT, "interval", path.name, detail)


def _dashboards(directory: Path, rules: list[RulesFile], find: Find) -> Iterator[Result]:
    """Lint every dashboard, follow its links and those of the alerts to it, and let promtool read the queries."""
    models: dict[str, dict[str, Any]] = {}
    names: dict[str, str] = {}
    for path in sorted(directory.glob("dashboards/*.json")):
        name = str(path.relative_to(directory))
        try:
            model = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        except msgspec.DecodeError as error:
            yield Result(Status.FAILED, "JSON", name, str(error))
            continue
        uid = str(model.get("uid") or path.stem)
        models[uid], names[uid] = model, name
    pages = frozenset(page.name for page in directory.glob("runbooks/*.md"))
    for uid, model in models.items():
        dead = list(dashboard_lint.dead_ends(model, models, pages))
        yield from _verdict("dashboard", names[uid], dead, dashboard_lint.lint(model))
    for alert, nowhere in pairing.lost_alerts(rules, models):
        yield Result(Status.FAILED, "alert", alert, f"dashboard_url: {nowhere}")
    if models:
        yield _queries(models, find("promtool"))


def _queries(models: dict[str, dict[str, Any]], promtool: str | None) -> Result:
    what = ("promtool check rules", "dashboards/*.json")
    if promtool is None:
        return Result(Status.ABSENT, *what, "promtool is not installed")
    with tempfile.TemporaryDirectory(prefix="omniwatch-") as directory:
        Path(directory, "queries.yaml").write_text(
            json.dumps(dashboard_lint.as_rules(models)), encoding="utf-8"
        )
        status, words = _run([promtool, "check", "rules", "--lint=none", "queries.yaml"], Path(directory))
    return Result(status, *what, words)
