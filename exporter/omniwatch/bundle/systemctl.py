"""Tell systemd about units that are installed or removed. On a file tree other than "/" it does nothing."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from omniwatch.bundle.program_files import InstallError

TIMEOUT_S = 120.0
ACCOUNT = "omniwatch"
NOT_LOADED = 5
"""systemctl's exit code for a unit there is no file of."""


def running(root: Path) -> bool:
    """Whether systemd runs this very file tree."""
    return root == Path("/") and Path("/run/systemd/system").is_dir()


def verify(units: Mapping[str, str], root: Path) -> None:
    """Have systemd read the units before they are anywhere. Raises InstallError with its words.

    On "/" the units they need have to be there too. That a program is not there is no fault: it may be about to come.
    Without systemd-analyze nothing is done.
    """
    tool = shutil.which("systemd-analyze")
    if tool is None or not units:
        return
    with tempfile.TemporaryDirectory(prefix="omniwatch-") as directory:
        paths = [Path(directory, name) for name in units]
        for path in paths:
            path.write_text(units[path.name], encoding="utf-8")
        done = _run([tool, "verify", "--man=no", *map(str, paths)])
    faults = [
        line
        for line in done.stderr.splitlines()
        if any(f"{directory}/{name}:" in line for name in units)
        or (
            root == Path("/")
            and any(line.startswith(f"{name}:") and "is not executable" not in line for name in units)
        )
    ]
    if faults:
        raise InstallError("\n".join(faults))


def arrive(
    root: Path, *, enabled: Iterable[str], restarted: Iterable[str], reloaded: Iterable[str] = ()
) -> list[str]:
    """Make the account and the spool's directory, have systemd read its units, start what is to run.

    Returns what went wrong, a line each: the files are in place all the same.
    """
    commands = []
    if (root / "etc/passwd").exists():
        commands += [
            ["systemd-sysusers", *([] if root == Path("/") else [f"--root={root}"]), "omniwatch.conf"]
        ]
    if running(root):
        commands += [
            ["systemd-tmpfiles", "--create", "omniwatch.conf"],
            ["systemctl", "daemon-reload"],
            *(["systemctl", "restart", unit] for unit in restarted),
            *(["systemctl", "try-reload-or-restart", unit] for unit in reloaded),
            *(["systemctl", "start", unit] for unit in enabled),
        ]
    return _all(command for command in commands if shutil.which(command[0]))


def leave(root: Path, units: Iterable[str]) -> list[str]:
    """Stop the units before their files go; returns what went wrong. One that systemd does not know is no fault."""
    commands = [["systemctl", "stop", unit] for unit in units] if running(root) else []
    return _all(commands, fine=(0, NOT_LOADED))


def restart(root: Path, units: Iterable[str]) -> list[str]:
    """Have systemd read its units again and start these anew where they run; returns what went wrong."""
    commands = [["systemctl", "daemon-reload"], *(["systemctl", "try-restart", unit] for unit in units)]
    return _all(commands if running(root) else [])


def forget(root: Path, units: Iterable[str], *, account: bool) -> list[str]:
    """After the files are gone: have systemd forget the units, and remove the account where nothing is left of its own."""
    commands: list[list[str]] = []
    if running(root):
        commands += [["systemctl", "daemon-reload"], *(["systemctl", "reset-failed", unit] for unit in units)]
    done = [fault for fault in _all(commands) if "reset-failed" not in fault]
    if account and _has_account(root):
        done += _all([["userdel", *([] if root == Path("/") else ["--prefix", str(root)]), ACCOUNT]])
    return done


def _has_account(root: Path) -> bool:
    try:
        return any(line.startswith(f"{ACCOUNT}:") for line in (root / "etc/passwd").read_text().splitlines())
    except OSError:
        return False


def _all(commands: Iterable[list[str]], fine: Container[int] = (0,)) -> list[str]:
    faults = []
    for command in commands:
        done = _run(command)
        if done.returncode not in fine:
            words = " ".join((done.stderr or done.stdout).split())
            faults.append(f"{' '.join(command)}: {words or f'exit code {done.returncode}'}")
    return faults


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer within {TIMEOUT_S:.0f} s")
    except OSError as error:
        return subprocess.CompletedProcess(command, 1, "", error.strerror or str(error))
