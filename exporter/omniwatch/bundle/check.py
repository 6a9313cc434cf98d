"""Check what a site can break in a bundle: with promtool, amtool, vmagent and vmalert where they are installed, and its links."""

from __future__ import annotations

import enum
import errno
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from omniwatch.bundle import dashboard_json, data, delivery, features, links, versions
from omniwatch.bundle.features import Feature, Tools
from omniwatch.bundle.links import RulesFile
from omniwatch.bundle.render import Files
from omniwatch.settings import Settings
from omniwatch.system import parts, rooted, user_yaml

TOOL_TIMEOUT_S = 120.0
CENTRES_RULES = ("fleet.rules", "centre-held.rules")
"""Rules that vmalert reads, too."""
CENTRES = {*CENTRES_RULES, "fleet.test", "centre-prometheus", "centre-alertmanager"}
UPLINKS = {"vmagent": "uplink", "prometheus": "uplink-prometheus"}
"""By agent, what it reads."""
NEEDS: dict[str, tuple[Feature, ...]] = {
    **dict.fromkeys((*CENTRES_RULES, "fleet.test"), (features.NEGATIVE_OFFSET,)),
    "centre-prometheus": (features.OUT_OF_ORDER,),
    "uplink-prometheus": (features.AGENT,),
    "alertmanager": (features.PAGERDUTY_KEY_FILE, features.MAIL_PASSWORD_FILE),
    "centre-alertmanager": (features.PAGERDUTY_KEY_FILE, features.MAIL_PASSWORD_FILE),
}
"""What a tool needs to know to read a file, by the file's name."""
SLEEP_FLAG = "--enable-sleep-mode"
MAX_BYTES = 8 << 20
"""Bytes of a file. The largest of a bundle has 300,000."""
READ_BY_NAME = frozenset(("rule_files", "scrape_config_files", "templates", "files"))
"""Before the names of files that a tool reads for what is in them, and quotes."""
MAX_DEPTH = 8
"""Folders in one another; a bundle has three."""
Find = Callable[[str], str | None]
"""Where a tool is installed: shutil.which, or a test's own."""
Progress = Callable[[int, int], None]
"""Called with how many tools have ended, and of how many."""


class Status(enum.Enum):
    """What came of a check; the value is the word that a line begins with."""

    OK = "SUCCESS"
    NOTE = "NOTE"
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


def check(
    directory: Path,
    find: Find = shutil.which,
    *,
    unit_tests: bool = True,
    whole: bool = True,
    unused: Collection[str] = (),
    needed: Collection[str] = (),
    progress: Progress = lambda done, of: None,
) -> list[Result]:
    """Check what `omniwatch render --out` wrote to `directory`. What is wrong is in the results; raises OSError.

    - The rules' unit tests take seconds; without them all is checked that has to hold for a file to be of use.
    - A directory that is not `whole` has some of the bundle's files: each is checked by itself, and no link is followed.
    - No tool is asked about files that are `unused`, by their names without an ending.
    - What a tool is too old to read is skipped, and has failed where it is `needed`.
    - `progress` is called each time that a tool has ended.
    - The tools are given a copy, for they would follow a link out of the directory.
    """
    next(directory.iterdir(), None)
    with tempfile.TemporaryDirectory(prefix="omniwatch-") as copy:
        for folder in data.FOLDERS:
            _copy(directory, PurePosixPath("/", folder), Path(copy))
        if whole and not any(Path(copy).glob("alerts/**/*.rules.yaml")):
            return [Result(Status.FAILED, "rules", str(directory), "no alerts/*.rules.yaml here")]
        # A tool would read what its file names, wherever that is.
        out = list(_leading_out(Path(copy)))
        results = _check(
            Path(copy),
            find,
            unit_tests=unit_tests,
            whole=whole,
            unused=(*unused, *(path.stem for path, _ in out)),
            needed=needed,
            progress=progress,
        )
        return [*results, *(_outside(path.relative_to(copy), name) for path, name in out)]


def _leading_out(directory: Path) -> Iterator[tuple[Path, str]]:
    """Yield what the configurations and the unit tests of a bundle have their tools read outside of it."""
    for path in sorted((*directory.glob("deploy/**/*.y*ml"), *directory.glob("alerts/**/*.test.yaml"))):
        with suppress(ValueError):
            for name in _named(user_yaml.load(path)):
                if not Path(os.path.normpath(path.parent / name)).is_relative_to(directory):
                    yield path, name


def _named(value: Any, key: object = None) -> Iterator[str]:
    """Yield the files that a configuration names for what is in them; `key` is what stands before the value."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _named(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _named(inner, key)
    elif isinstance(value, str) and key in READ_BY_NAME:
        yield value


def _outside(path: Path, name: str) -> Result:
    return Result(
        Status.FAILED, "files", str(path), f"{name}: outside of the folder that is checked, so it is not read"
    )


def _copy(directory: Path, folder: PurePosixPath, to: Path) -> None:
    """Copy a folder's files and the folders in it, but none that a link leads to."""
    for name in rooted.names(directory, folder):
        path = folder / name
        if rooted.link(directory, path) is None and rooted.is_folder(directory, path):
            if len(path.parts) > MAX_DEPTH:
                raise OSError(
                    errno.ELOOP, "folders in folders without an end", str(rooted.shown(directory, path))
                )
            _copy(directory, path, to)
        else:
            target = rooted.shown(to, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(rooted.read(directory, path, MAX_BYTES))


def _check(
    directory: Path,
    find: Find,
    *,
    unit_tests: bool,
    whole: bool,
    unused: Collection[str],
    needed: Collection[str],
    progress: Progress,
) -> list[Result]:
    rules = sorted(directory.glob("alerts/**/*.rules.yaml"))
    tests = sorted(directory.glob("alerts/**/*.test.yaml"))
    configs = sorted(directory.glob("deploy/**/*.y*ml"))
    more_rules = [path for path in configs if path.name.endswith(".rules.yaml")]
    results: list[Result] = []
    parsed: dict[Path, Any] = {}
    for path in (*rules, *tests, *configs):
        name = str(path.relative_to(directory))
        try:
            parsed[path] = _read(path)
        except ValueError as error:
            results.append(Result(Status.FAILED, "YAML", name, " ".join(str(error).split())))
        else:
            results.append(Result(Status.OK, "YAML", name))
    if exit_code(results):
        return results
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        asked = Tools(find)
        judged = [path for path in (*rules, *more_rules) if path.stem not in unused]
        read = [path for path in (*configs, *(tests if unit_tests else ())) if path.stem not in unused]
        tools = _tools(directory, judged, read, asked, needed, pool)
        own = [
            *(_versions(find, unused) if whole else ()),
            *(_lint(asked) if judged else ()),
            *_dashboards(directory, [parsed[path] for path in rules], asked, whole=whole),
        ]
        for done, _ in enumerate(as_completed(tools), 1):
            progress(done, len(tools))
    return [*results, *(tool.result() for tool in tools), *own, *_sleep_mode(directory)]


def _sleep_mode(directory: Path) -> Iterator[Result]:
    """Warn of a model server that can be put to sleep (docs/one-model-one-board.md)."""
    for path in sorted(directory.glob("deploy/systemd/*.service")):
        if SLEEP_FLAG in path.read_text(encoding="utf-8"):
            detail = (
                f"{SLEEP_FLAG}: on a Jetson sleep frees no memory, and after wakeup vLLM-Omni 0.30 holds every request until "
                "/resume (docs/one-model-one-board.md)"
            )
            yield Result(Status.LINT, "model server", str(path.relative_to(directory)), detail)


def check_files(
    files: Files,
    find: Find = shutil.which,
    *,
    unit_tests: bool = True,
    whole: bool = True,
    unused: Collection[str] = (),
    needed: Collection[str] = (),
    progress: Progress = lambda done, of: None,
) -> list[Result]:
    """As `check`, of a rendered bundle, or some `files` of it, before it is anywhere. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="omniwatch-") as directory:
        for path, text in files.items():
            target = Path(directory, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        return _check(
            Path(directory),
            find,
            unit_tests=unit_tests,
            whole=whole,
            unused=unused,
            needed=needed,
            progress=progress,
        )


def unused(settings: Settings, *, centre: bool = False) -> set[str]:
    """Return the files of which a site makes no use, a device or the `centre` of a fleet: their names without an ending."""
    fleet = settings.fleet
    if centre:
        return {*UPLINKS.values(), "alertmanager"}
    found = CENTRES | set(UPLINKS.values())
    if fleet.remote_write_url:
        found.remove(UPLINKS[fleet.agent])
    return found | {"alertmanager"} if fleet.alertmanager_urls else found


def summary(results: Iterable[Result]) -> str:
    """Say in one line how many checks passed, failed, and were left out for want of a tool."""
    found = list(results)
    counts = {status: sum(result.status is status for result in found) for status in Status}
    parts = [
        f"{counts[status]} {word}"
        for status, word in (
            (Status.OK, "passed"),
            (Status.FAILED, "failed"),
            (Status.LINT, "lint"),
            (Status.NOTE, "to note"),
        )
        if counts[status] or status is Status.OK
    ]
    absent = sorted({result.detail for result in found if result.status is Status.ABSENT})
    if absent:
        parts.append(f"{counts[Status.ABSENT]} skipped ({', '.join(absent)})")
    return f"{len(found)} checks: {', '.join(parts)}"


def check_delivery(settings: Settings) -> list[Result]:
    """Check that a page reaches a person with these settings."""
    faults = (*delivery.faults(settings), *parts.lacking(settings))
    wrong = [Result(Status.FAILED, "delivery", "omniwatch.yaml", fault) for fault in faults]
    return wrong or [Result(Status.OK, "delivery", "omniwatch.yaml")]


def exit_code(results: Iterable[Result]) -> int:
    """As promtool's: 0 when all is well, 1 when something failed, 3 when there is only lint."""
    found = {result.status for result in results}
    return 1 if Status.FAILED in found else 3 if Status.LINT in found else 0


def _read(path: Path) -> Any:
    """Parse a YAML file, as what its name says it is. Raises ValueError."""
    raw = user_yaml.load(path)
    if path.name.endswith(".rules.yaml"):
        return msgspec.convert(raw, RulesFile)
    return raw


def _versions(find: Find, unused: Collection[str]) -> Iterator[Result]:
    """Hold the installed tools against the least versions. One that says none is not judged, nor one that reads nothing here."""
    for least, wrong in versions.installed(find):
        if least.program == "vmalert" and set(CENTRES_RULES) <= set(unused):
            continue
        yield Result(Status.FAILED if wrong else Status.OK, "version", least.what, wrong)


def _lint(tools: Tools) -> Iterator[Result]:
    """Say that what is written is not linted, where promtool has no lint."""
    if not tools.knows(features.LINT):
        yield Result(Status.ABSENT, "promtool check rules", "lint", features.LINT.lacks)


def _tools(
    directory: Path,
    rules: list[Path],
    others: list[Path],
    tools: Tools,
    needed: Collection[str],
    pool: Executor,
) -> list[Future[Result]]:
    """Begin every tool; unit tests, which take longest, first. Returns them in the order of what they check."""

    def named(*names: str) -> list[Path]:
        return [path for path in others if path.stem in names]

    tests = [path for path in others if path.name.endswith(".test.yaml")]
    lint = [
        option
        for feature, option in ((features.LINT, "--lint=all"), (features.LINT_FATAL, "--lint-fatal"))
        if tools.knows(feature)
    ]
    allowed = "-remoteWrite.relabelConfig=deploy/fleet/uplink-relabel.yml"
    vmagent = ["-dryRun", "-remoteWrite.url=http://127.0.0.1", allowed, "-promscrape.config={}"]
    commands = [
        ("promtool check rules", [*lint, "{}"], rules),
        ("promtool test rules", ["{}"], tests),
        ("promtool check config", ["{}"], named("prometheus", "centre-prometheus")),
        ("promtool check config", ["--agent", "{}"], named("uplink-prometheus")),
        ("amtool check-config", ["{}"], named("alertmanager", "centre-alertmanager")),
        ("vmagent", vmagent, named("uplink")),
        ("vmalert", ["-dryRun", "-rule={}"], [path for path in rules if path.stem in CENTRES_RULES]),
    ]
    jobs = [(program, options, path) for program, options, paths in commands for path in paths]
    size = {job[2]: job[2].stat().st_size for job in jobs}
    longest = sorted(range(len(jobs)), key=lambda at: (jobs[at][2] not in tests, -size[jobs[at][2]]))
    begun = {at: pool.submit(_tool, directory, tools, needed, *jobs[at]) for at in longest}
    return [begun[at] for at in range(len(jobs))]


def _tool(
    directory: Path, tools: Tools, needed: Collection[str], program: str, options: list[str], path: Path
) -> Result:
    name, words = str(path.relative_to(directory)), program.split()
    tool = tools.find(words[0])
    if tool is None:
        return Result(Status.ABSENT, program, name, f"{words[0]} is not installed")
    if lacks := _lacks(tools, words[0], path):
        return Result(Status.FAILED if path.stem in needed else Status.ABSENT, program, name, lacks)
    arguments = [option.format(name) for option in options]
    status, said = _run([tool, *words[1:], *arguments], directory)
    return Result(status, program, name, said)


def _lacks(tools: Tools, tool: str, path: Path) -> str:
    """Return what of a file its tool is too old for, and the ways out; "" where it is new enough."""
    for feature in NEEDS.get(path.stem, ()):
        if feature.tool != tool or feature.sign not in path.read_text(encoding="utf-8"):
            continue
        if not tools.knows(feature):
            inline = path.stem == "alertmanager"
            return feature.lacks + (", or set receivers.secrets: inline" if inline else "")
    return ""


def _run(command: list[str], directory: Path) -> tuple[Status, str]:
    """Run a tool that says with its exit code how it went: 0 well, 3 lint, else failed. Its words only when not well."""
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            capture_output=True,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Status.FAILED, f"no answer within {TOOL_TIMEOUT_S:.0f} s"
    except OSError as error:
        return Status.FAILED, f"{command[0]}: {error.strerror}"
    if done.returncode == 0:
        return Status.OK, ""
    words = "\n".join(line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip())
    return Status.LINT if done.returncode == 3 else Status.FAILED, f"exit code {done.returncode}\n{words}"


def _verdict(check: str, subject: str, problems: Iterable[str]) -> list[Result]:
    """Return a line for each problem, or the one that says that there is none."""
    found = [Result(Status.FAILED, check, subject, problem) for problem in problems]
    return found or [Result(Status.OK, check, subject)]


def _dashboards(directory: Path, rules: list[RulesFile], tools: Tools, *, whole: bool) -> Iterator[Result]:
    """Read every dashboard, have promtool read the queries, and follow the links of alerts and panels of a `whole` bundle."""
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
    pages = {page.name for page in directory.glob("runbooks/*.md")}
    for rule in links.alerts(rules) if whole else ():
        yield from _verdict("alert", rule.alert, links.of_alert(rule, models, pages))
    for line in links.unset(links.alerts(rules)) if whole else ():
        yield Result(Status.NOTE, "links", "omniwatch.yaml", line)
    for uid, model in models.items():
        dead = links.of_panels(model, models, pages) if whole else ()
        yield from _verdict("dashboard", names[uid], dead)
    if models:
        yield _queries(models, tools)


def _queries(models: dict[str, dict[str, Any]], tools: Tools) -> Result:
    what, promtool = ("promtool check rules", "dashboards/*.json"), tools.find("promtool")
    if promtool is None:
        return Result(Status.ABSENT, *what, "promtool is not installed")
    with tempfile.TemporaryDirectory(prefix="omniwatch-") as directory:
        Path(directory, "queries.yaml").write_text(
            json.dumps(dashboard_json.as_rules(models)), encoding="utf-8"
        )
        unlinted = ["--lint=none"] if tools.knows(features.LINT) else []
        status, words = _run([promtool, "check", "rules", *unlinted, "queries.yaml"], Path(directory))
    return Result(status, *what, words)
