"""Secrets within the device's alertmanager.yml, for an Alertmanager before 0.25, which reads none of these from a file.

What is rendered names files, whatever `receivers.secrets` says. An installation alone puts in what the files hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from omniwatch.bundle.program_files import InstallError
from omniwatch.bundle.render import Files, quoted
from omniwatch.bundle.wiring import ALERTMANAGER, account
from omniwatch.bundle.yaml_text import load_yaml
from omniwatch.settings import Settings
from omniwatch.system import rooted

UNSEEN = "<secret>"
"""Stands for a secret wherever one is shown or checked."""
_FILE = re.compile(r"^([ -]*)(routing_key|smtp_auth_password)_file: (\".*\")$", re.MULTILINE)
_SECRET = re.compile(r"^([ -]*(?:routing_key|smtp_auth_password): ).*$", re.MULTILINE)


def checked(files: Files, settings: Settings) -> Files:
    """Return the files in the form in which Alertmanager is to read them, without the secrets themselves."""
    return _changed(files, settings, lambda path: UNSEEN)


def filled(files: Files, settings: Settings, root: Path) -> Files:
    """Return the files with the secrets that these settings want in them. Raises InstallError and OSError."""
    return _changed(files, settings, lambda path: _secret(root, PurePosixPath(path)))


def readers(settings: Settings, root: Path) -> dict[PurePosixPath, int]:
    """Return the files of the bundle that only root and one group may read, with that group's number. Raises InstallError."""
    return {ALERTMANAGER.rendered: account(root, ALERTMANAGER)} if _is_wanted(settings) else {}


def ended_lines(settings: Settings, root: Path) -> list[str]:
    """Say, a line each, which file of a secret ends in a newline that Alertmanager takes for a part of it."""
    name = settings.receivers.mail.password_file
    if not name or _is_wanted(settings) or settings.fleet.alertmanager_urls:
        return []
    path = rooted.shown(root, PurePosixPath(name))
    try:
        is_ended = rooted.read(root, PurePosixPath(name)).endswith(b"\n")
    except OSError:
        return []
    says = "ends in a newline, which Alertmanager 0.25 and 0.26 send with the password; truncate --size=-1"
    return [f"note: {path}: {says} {path}"] if is_ended else []


def masked(text: str) -> str:
    """Return a file's text with no secret in it, as it may be shown."""
    return _SECRET.sub(rf'\1"{UNSEEN}"', text)


def _changed(files: Files, settings: Settings, secret: Callable[[str], str]) -> Files:
    path = ALERTMANAGER.rendered
    if not _is_wanted(settings) or path not in files:
        return files

    def line(found: re.Match[str]) -> str:
        return f"{found[1]}{found[2]}: {quoted(secret(load_yaml(found[3])))}"

    return {**files, path: _FILE.sub(line, files[path])}


def _is_wanted(settings: Settings) -> bool:
    """In a fleet the centre's Alertmanager sends, and the device's is not there."""
    return settings.receivers.secrets == "inline" and not settings.fleet.alertmanager_urls


def _secret(root: Path, path: PurePosixPath) -> str:
    lines = rooted.read(root, path).decode(errors="replace").split("\n")
    if not lines[0].strip() or any(lines[1:]) or not lines[0].strip().isprintable():
        raise InstallError(f"{rooted.shown(root, path)}: expected a secret, alone, on one line")
    return lines[0].strip()
