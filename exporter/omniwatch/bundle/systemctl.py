"""Tell systemd about units that are installed or removed. On a file tree other than "/" it does nothing."""

from __future__ import annotations

import shutil
import stat
import subprocess
import tempfile
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from omniwatch.bundle.program_files import InstallError
from omniwatch.system import rooted

TIMEOUT_S = 120.0
ACCOUNT = "omniwatch"
OWED = PurePosixPath("/run/omniwatch.install.owed")
"""Restarts and reloads that have not been done. Not kept over a reboot, after which each unit has read its files."""
_VERBS = ("restart", "try-reload-or-restart")
_ETC = PurePosixPath("/etc")
_PASSWD = _ETC / "passwd"
_GSHADOW = _ETC / "gshadow"
_ACCOUNTS = (_GSHADOW, _ETC / "shadow", _ETC / "group", _PASSWD)
"""In the order in which they are written: whether the account is there is read from the last, so that what was killed is done again."""
_READ_BESIDE = (_ETC / "login.defs", _ETC / "sysusers.d/omniwatch.conf")
NOT_LOADED = 5
"""systemctl's exit code for a unit there is no file of."""


def running(root: Path) -> bool:
    """Whether systemd runs this very file tree."""
    return root == Path("/") and Path("/run/systemd/system").is_dir()


def verify(units: Mapping[str, str], root: Path) -> None:
    """Have systemd verify the units before they are installed. Raises InstallError with its words.

    On "/" the units they need have to be there too. A program that is missing is no fault: it may be installed next.
    Without systemd-analyze nothing is verified.
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


def owe(root: Path, *, restarted: Iterable[str], reloaded: Iterable[str]) -> None:
    """Write down, before anything is installed, what systemd has to restart and reload.

    What an installation that was killed or a reload that failed has left undone, the next one does. Raises OSError.
    """
    if running(root):
        _keep(root, _owed(root) | _verbs(restarted, reloaded))


def arrive(
    root: Path,
    *,
    enabled: Sequence[str],
    restarted: Iterable[str],
    reloaded: Iterable[str] = (),
    is_starting: bool = True,
) -> list[str]:
    """Make the account and the spool's directory, have systemd read its units, start what is to run, and, where it `is_starting`, do
    what an earlier installation owes.

    Returns what went wrong, a line each: the files are in place all the same.
    """
    commands, faults = [], []
    _sweep_accounts(root)
    if rooted.stat_of(root, _PASSWD) and shutil.which("systemd-sysusers"):
        faults = _change_accounts(root, ["systemd-sysusers"], ["--root={}"], "omniwatch.conf")
    if running(root):
        commands += [
            ["systemd-tmpfiles", "--create", "omniwatch.conf"],
            ["systemctl", "daemon-reload"],
        ]
    faults += _all(command for command in commands if shutil.which(command[0]))
    if running(root) and shutil.which("systemctl"):
        if is_starting:
            owed = _owed(root) | _verbs(restarted, reloaded)
            # A unit that failed too often would not be started for minutes, though what was wrong may be mended.
            _all(
                [["systemctl", "reset-failed", *dict.fromkeys((*owed, *enabled))]] if owed or enabled else []
            )
            faults += _pay(root, owed)
        faults += _all(["systemctl", "start", unit] for unit in enabled)
    return faults


def _verbs(restarted: Iterable[str], reloaded: Iterable[str]) -> dict[str, str]:
    """Return the verb for each unit; one that is restarted need not be reloaded."""
    return dict.fromkeys(reloaded, "try-reload-or-restart") | dict.fromkeys(restarted, "restart")


def _owed(root: Path) -> dict[str, str]:
    try:
        lines = rooted.read(root, OWED).decode().splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    words = (line.split() for line in lines)
    return {pair[1]: pair[0] for pair in words if len(pair) == 2 and pair[0] in _VERBS}


def _keep(root: Path, owed: Mapping[str, str]) -> None:
    rooted.remove_staged(root, OWED.parent, (OWED.name,))
    if owed:
        rooted.make_folders(root, OWED.parent)
        lines = "".join(f"{verb} {unit}\n" for unit, verb in owed.items())
        rooted.replace(root, OWED, lines.encode(), mode=0o600)
    else:
        rooted.remove(root, OWED)


def _pay(root: Path, owed: Mapping[str, str]) -> list[str]:
    """Do what is owed; what fails stays owed. A unit that is no longer there is owed nothing."""
    faults, left = [], {}
    for verb in _VERBS:
        for unit in (one for one, its in owed.items() if its == verb):
            if wrong := _all([["systemctl", verb, unit]], fine=(0, NOT_LOADED)):
                faults += wrong
                left[unit] = verb
    try:
        _keep(root, left)
    except OSError as error:
        faults.append(f"{error.filename}: {error.strerror}")
    return faults


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
    _sweep_accounts(root)
    if running(root):
        _keep(root, {})
        commands += [["systemctl", "daemon-reload"], *(["systemctl", "reset-failed", unit] for unit in units)]
    done = [fault for fault in _all(commands) if "reset-failed" not in fault]
    if account and _has_account(root):
        # shadow 4.8 (Ubuntu 22.04) takes the prefix in this form alone.
        done += _change_accounts(root, ["userdel"], ["-P", "{}"], ACCOUNT)
    return done


def _has_account(root: Path) -> bool:
    try:
        accounts = rooted.read(root, _PASSWD)
    except OSError:
        return False
    return any(line.startswith(f"{ACCOUNT}:".encode()) for line in accounts.splitlines())


def _sweep_accounts(root: Path) -> None:
    """Remove what one that was killed has left staged beside an image's accounts. On "/" their own programs write them."""
    if root != Path("/"):
        rooted.remove_staged(root, _ETC, [path.name for path in _ACCOUNTS])


def _change_accounts(root: Path, command: list[str], options: list[str], name: str) -> list[str]:
    """Run what changes accounts. Such a program follows an image's links out of it: there it gets copies of the files, and what it
    changed in them is taken over.
    """
    if root == Path("/"):
        return _all([[*command, name]])
    with tempfile.TemporaryDirectory(prefix="omniwatch-") as directory:
        before: dict[PurePosixPath, bytes] = {}
        for path in (*_ACCOUNTS, *_READ_BESIDE):
            if rooted.stat_of(root, path) is not None:
                before[path] = rooted.read(root, path)
                copy = rooted.shown(Path(directory), path)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(before[path] if path != _GSHADOW else _of_groups(root, before[path]))
        faults = _all([[*command, *(option.format(directory) for option in options), name]])
        for path in _ACCOUNTS:
            copy = rooted.shown(Path(directory), path)
            if not copy.exists():
                continue
            # systemd 249 makes a gshadow that not even its owner may read: in a user's image, the next command could not.
            copy.chmod(stat.S_IMODE(copy.stat().st_mode) | 0o600)
            found = rooted.stat_of(root, path)
            mode = stat.S_IMODE((found or copy.stat()).st_mode)
            if (after := copy.read_bytes()) != before.get(path):
                rooted.replace(root, path, after, mode=mode, like=found)
    return faults


def _of_groups(root: Path, gshadow: bytes) -> bytes:
    """Return gshadow's lines that have a group: one that was killed has written it first, and systemd-sysusers refuses the others."""
    groups = rooted.read(root, _ETC / "group") if rooted.stat_of(root, _ETC / "group") else b""
    known = {line.partition(b":")[0] for line in groups.splitlines()}
    return b"".join(line for line in gshadow.splitlines(keepends=True) if line.partition(b":")[0] in known)


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
