"""What is on a device once it is installed: nothing of the desk, no more than agreed, and every command that it is told to run."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from helpers import imports
from helpers.installation import device, install, run_from, site_of
from helpers.paths import CLONE
from helpers.runbooks import fenced, inline
from omniwatch.bundle import program_files, render
from omniwatch.cli import DESK_COMMANDS
from omniwatch.settings import Settings

LINES = sum(
    (
        21_600,
        600,  # installations that were killed are ended, lists of files that lie are refused, calls have one deadline
        350,  # what an older Prometheus and Alertmanager can do: each is asked; secrets for one that reads no files
        350,  # no link of an image leads out of it
        120,  # a file of a user's is a regular one, read to a bound, and its YAML by one reader
        500,  # sessions by the server's word, passwords by turns, certificates as served, hostile servers, killed writes
        1_700,  # the ear: what the kernel says of the listener's connection, and the player that goes by it
        1_200,  # status asks what runs, a test page waits for the robot's answer, one rule for the configuration file
        140,  # speech in Opus
        300,  # congestion control: what a listener's connection has, what the kernel has, BBR for new ones
        160,  # what a reader broke: messages too long, accounts half made, names of an image's files, files that a tool would read
        500,  # a webhook's words are text, damaged journals, a client's reports within bounds, the bridge by web/
        100,  # when an answer's text begins and how long it is, and which speech is silence
        80,  # the ear apart from the stream table, in modules of its own
        240,  # live sessions that no other client ends or crowds out, a journal that goes back, bounds in the bridge
        20,  # the Chinese head of an alert's page, in the catalogue
    )
)
"""Lines of Python in all. Who raises it adds a line that says for what; 28,000 are the end."""
BYTES = 9_000_000
"""Most bytes of the program with the packages it requires; 16,000,000 are the end."""
OF_EXTRAS = {"av", "matplotlib"}
"""What a device's commands ask for by their extra, and what the model server brings for Resume."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of an installation from this clone."""
    root = device(tmp_path_factory.mktemp("device"))
    done = install(root)
    assert done.exit_code == 0, done.output
    return site_of(root)


def files(site: Path) -> dict[str, bytes]:
    return {str(path.relative_to(site)): path.read_bytes() for path in site.rglob("*") if path.is_file()}


def of_the_package(site: Path) -> dict[str, bytes]:
    return {name: content for name, content in files(site).items() if name.startswith("omniwatch/")}


def test_a_device_gets_nothing_that_only_a_desk_needs(site: Path) -> None:
    names = files(site).keys()
    assert {"omniwatch/tap/__init__.py", "omniwatch/_data/deploy/systemd/omniwatch.service.j2"} <= names
    assert not [name for name in names if program_files.is_for_desk(name) or name.startswith("promql_parser")]


@pytest.mark.parametrize("part", program_files.DESK_ONLY)
def test_what_is_left_out_is_there_at_the_desk(part: str) -> None:
    data_name = part.removeprefix("_data/")
    assert (imports.PACKAGE / part if data_name == part else CLONE / data_name).exists()


def test_a_wheel_and_a_clone_install_the_same_files(site: Path, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "wheel")]
    subprocess.run(build, cwd=CLONE, check=True, capture_output=True)
    with zipfile.ZipFile(next((tmp_path / "wheel").glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "site")
    root = device(tmp_path / "device")
    packages = Path(sysconfig.get_path("purelib"))
    done = run_from(tmp_path / "site", "install", "--root", str(root), beside=packages)
    assert done.returncode == 0, done.stderr
    assert of_the_package(site_of(root)) == of_the_package(site)


def test_no_module_of_a_device_imports_one_that_stays_at_the_desk(site: Path) -> None:
    """Imports within functions are counted too."""
    there = {name.partition("/")[0].removesuffix(".py") for name in files(site)} | OF_EXTRAS
    missing = {
        (module, need)
        for module, needs in imports.of_modules().items()
        if not _is_at_the_desk(module)
        for need in needs
        if _is_at_the_desk(need) or need.partition(".")[0] not in there | sys.stdlib_module_names
    }
    assert missing == set()


def _is_at_the_desk(module: str) -> bool:
    return program_files.is_for_desk(f"{module.replace('.', '/')}.py") or module in (
        "omniwatch.client",
        "omniwatch.desk",
    )


def test_a_device_has_no_more_than_was_agreed(site: Path) -> None:
    lines, size = Counter[str](), Counter[str]()
    for name, content in files(site).items():
        parts = name.split("/")
        room = "/".join(parts[:2]) if parts[0] == "omniwatch" else parts[0]
        size[room] += len(content)
        if parts[0] == "omniwatch" and name.endswith(".py"):
            lines[room] += content.count(b"\n")
    table = "\n".join(
        f"{room:32}{lines[room]:8,}{length:12,}" for room, length in sorted(size.items(), key=lambda r: -r[1])
    )
    assert lines.total() <= LINES, f"{lines.total():,} lines\n{table}"
    assert size.total() <= BYTES, f"{size.total():,} bytes\n{table}"


def named() -> list[str]:
    """Return the commands that runbooks and units name, without their flags."""
    typed = [words for command in fenced() + inline() for words in command.programs()]
    units = [
        started.split()
        for path, text in render.render(Settings()).items()
        if path.suffix == ".service"
        for started in re.findall(r"^Exec\w+=\S*/(omniwatch .*)$", text, re.MULTILINE)
    ]
    found = set()
    for words in typed + units:
        if words[0] == "omniwatch":
            name, inner, *_ = [*words[1:], ""]
            found.add(f"{name} {inner}" if name == "fleet" else name)
    return sorted(found)


def test_runbooks_and_units_name_commands() -> None:
    assert {"exporter", "fleet off", "fleet status", "notify", "status", "tune"} <= {*named()}


@pytest.mark.parametrize("command", [*named(), "fleet serve"])
def test_the_installed_program_has_each_command_that_a_page_or_a_unit_names(site: Path, command: str) -> None:
    done = run_from(site, *command.split(), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: omniwatch {command}")


@pytest.mark.parametrize("command", DESK_COMMANDS)
def test_a_command_of_the_desk_is_one_line_on_a_device(site: Path, command: str) -> None:
    done = run_from(site, command)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {command}: a command of the desk")
    assert done.stderr.count("\n") == 1


def test_the_help_of_a_device_lists_no_command_of_the_desk(site: Path) -> None:
    shown = run_from(site, "--help").stdout
    assert "On a device:" in shown
    assert "At a desk" not in shown


@pytest.mark.parametrize("options", [[], ["--purge", "--yes"]])
def test_the_installed_program_removes_itself(tmp_path: Path, options: list[str]) -> None:
    """What it has to say in the end it has read before: its modules are gone by then."""
    root = device(tmp_path)
    assert install(root).exit_code == 0
    site = site_of(root)
    done = run_from(site, "uninstall", "--root", str(root), *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^removed \d+ files and folders$", done.stdout, re.MULTILINE)
    assert not (site / "omniwatch").exists()
