"""Images whose files have odd names, numbers and depths: each command ends with a line, and no name is a command to a terminal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from helpers.bundles import rendered
from helpers.installation import CONFIG, UNIT, install, snapshot, status, uninstall
from helpers.killed_installations import NEW, modules
from helpers.linked_images import image, installed
from helpers.trees import grow
from omniwatch.bundle import check
from omniwatch.cli import main
from omniwatch.settings import Settings

DEPTH = 1100
ESCAPE = "\x1b[2J"
TUNED = "# Written by `omniwatch tune`;"
READER = "ExecStart=x --config.file=/etc/omniwatch/bundle/deploy/prometheus/prometheus.yml\n"


def ends_well(done: Result, *codes: int) -> None:
    assert isinstance(done.exception, SystemExit | None), done.exception
    assert done.exit_code in codes, done.output
    assert ESCAPE[0] not in done.output


def deep(folder: Path, depth: int) -> None:
    """Make folders in folders, more than functions can call each other."""
    opened = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("a", dir_fd=opened)
        inner = os.open("a", os.O_RDONLY, dir_fd=opened)
        os.close(opened)
        opened = inner
    os.close(opened)


@pytest.mark.slow
@pytest.mark.parametrize("is_read", [False, True], ids=["unread", "read"])
def test_names_in_an_image_are_no_commands_to_a_terminal(tmp_path: Path, *, is_read: bool) -> None:
    """Neither those that a purge asks about, nor those of who still reads the bundle."""
    root = installed(tmp_path / "root")
    for name in (f"{ESCAPE}\nmine", "\udcff"):
        (root / "etc/omniwatch" / name).write_text("mine")
    for unit in (f"{ESCAPE}.service", "\udcff.service"):
        grow(root, f"etc/systemd/system/{unit}.d/50-cpu.conf: {TUNED}")
    if is_read:
        grow(root, "proc/7/")
        (root / "proc/7/cmdline").write_text(f"{ESCAPE}\0--config.file=/etc/omniwatch/bundle/x\0")
        (root / f"etc/systemd/system/prometheus.service.d/{ESCAPE}\udcff.conf").write_text(READER)
    with modules(NEW):
        ends_well(status(root), 0, 1, 2)
        ends_well(uninstall(root, "--purge", "--dry-run"), 0)
        if not is_read:
            ends_well(uninstall(root, "--purge"), 2)
        done = uninstall(root, "--purge", "--yes")
    ends_well(done, int(is_read))
    assert "\\x1b[2J.service.d/50-cpu.conf\n" in done.output
    assert not (root / UNIT).exists()


def test_what_a_file_of_an_image_says_is_no_command_to_a_terminal(tmp_path: Path) -> None:
    root = image(tmp_path / "root")
    (root / UNIT).write_text(f"{ESCAPE}\n[Service]\n")
    with modules(NEW):
        done = install(root, "--diff")
    ends_well(done, 1)
    assert "-\\x1b[2J\n" in done.output


def test_folders_without_an_end_are_one_line(tmp_path: Path) -> None:
    root = installed(tmp_path / "root")
    deep(root / "etc/omniwatch", DEPTH)
    before = (root / UNIT).read_bytes()
    try:
        for options in (("--purge", "--dry-run"), ("--purge", "--yes")):
            with modules(NEW):
                done = uninstall(root, *options)
            assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1), done.exception
            assert "folders in folders without an end" in done.stderr
    finally:
        # Deeper than this no tree is removed by what cleans up after a test.
        (root / "etc/omniwatch" / "/".join(["a"] * (DEPTH // 2))).rename(tmp_path / "half")
    assert (root / UNIT).read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("number", ["9" * 20, "4294967296", "4294967295", "9" * 6000])
def test_a_group_that_is_none_is_one_line_and_nothing_is_written(tmp_path: Path, number: str) -> None:
    root = image(tmp_path / "root")
    (root / "etc/passwd").write_text(f"root:x:0:0::/:/bin/sh\nprometheus:x:1:{number}::/:/bin/sh\n")
    for server in ("prometheus", "prometheus-alertmanager"):
        unit = root / f"usr/lib/systemd/system/{server}.service"
        unit.write_text(f"[Service]\nUser=prometheus\nExecStart=/usr/bin/{server} $ARGS\n")
    (root / "key").write_text("of pages")
    (root / CONFIG).write_text("receivers: {secrets: inline, page: {pagerduty_routing_key_file: /key}}\n")
    before = snapshot(root)
    with modules(NEW):
        done = install(root, "--with-prometheus")
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1), done.exception
    assert "the account of prometheus-alertmanager.service was not found" in done.stderr
    assert snapshot(root) == before


@pytest.mark.parametrize("command", ["install", "uninstall", "status"])
def test_an_image_that_is_a_link_to_this_machine_is_refused(tmp_path: Path, command: str) -> None:
    (tmp_path / "image").symlink_to("/")
    done = CliRunner().invoke(
        main, [command, f"--root={tmp_path}/image", *(["--dry-run"] if command != "status" else [])]
    )
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"Error: --root: {tmp_path}/image leads to /, which is this machine")


@pytest.mark.programs
@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("deploy/prometheus/prometheus.yml", "rule_files:\n", "rule_files:\n  - {}\n"),
        (
            "deploy/prometheus/prometheus.yml",
            "scrape_configs:\n",
            "scrape_configs:\n  - {{job_name: x, file_sd_configs: [{{files: [{}]}}]}}\n",
        ),
        ("deploy/alertmanager/alertmanager.yml", "templates:\n", "templates:\n  - {}\n"),
        ("alerts/device.test.yaml", "rule_files:\n", "rule_files:\n  - {}\n"),
    ],
)
@pytest.mark.parametrize("is_relative", [False, True])
def test_no_tool_reads_outside_of_the_folder_that_is_checked(
    tmp_path: Path, file: str, before: str, after: str, *, is_relative: bool
) -> None:
    """Its words would quote what it has read."""
    bundle = rendered(tmp_path / "bundle", Settings())
    secret = tmp_path / "secret.yaml"
    secret.write_text("{{ secret_of_the_host }}\n")
    named = ("../" * 20 + str(secret)[1:]) if is_relative else str(secret)
    text = (bundle / file).read_text()
    assert before in text
    (bundle / file).write_text(text.replace(before, after.format(named), 1))
    results = check.check(bundle, unit_tests=False)
    (failed,) = [one for one in results if one.status is check.Status.FAILED]
    assert (failed.check, failed.subject) == ("files", file)
    assert "secret_of_the_host" not in "".join(map(str, results))


@pytest.mark.programs
def test_a_bundles_files_have_any_name(tmp_path: Path) -> None:
    bundle = rendered(tmp_path / "bundle", Settings())
    (bundle / "alerts/device.rules.yaml").rename(bundle / f"alerts/\udcff{ESCAPE}.rules.yaml")
    ends_well(CliRunner().invoke(main, ["check", str(bundle), "-v"]), 0, 1, 3)
