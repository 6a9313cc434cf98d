"""Render the data folders with a site's settings: pure, but for `changed` and `write`, which meet the disk."""

from __future__ import annotations

import difflib
import functools
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import jinja2
import yaml
from prometheus_client.utils import floatToGoString

from omniwatch.bundle import dashboards, data, profiles
from omniwatch.settings import Settings

Files = Mapping[PurePosixPath, str]
"""A rendered bundle: the text of each file by its path below the output directory."""
SUFFIX = ".j2"


class RenderError(ValueError):
    """A template or a name that does not hold; the message is one line."""


def render(settings: Settings, root: Path | None = None) -> dict[PurePosixPath, str]:
    """Render every template below alerts/ and deploy/, expand the dashboards to Grafana's JSON and add the runbooks as
    they are, in the order of their paths.

    The fields of `settings` are the templates' variables (webhooks that are not said are the bridge's), the `defaults` of
    all, the model server's `profile`, and `panel_of`: for an alert's name the panel that shows it. The same settings give
    the same bytes. Raises RenderError.
    """
    root = root or data.root()
    environment = _environment(root)
    variables: dict[str, Any] = {name: getattr(settings, name) for name in settings.__struct_fields__}
    variables["defaults"] = Settings()
    variables["receivers"] = settings.receivers.beside(settings.notify)
    if (root / profiles.FOLDER).is_dir():
        try:
            variables["profile"] = profiles.fitting(
                settings.server.profile, settings.server.device_memory_gb, root
            )
        except profiles.ProfileError as error:
            raise RenderError(str(error)) from error
    sources = _sources(root)
    if not sources:
        raise RenderError(f"{root}: no {', '.join(data.FOLDERS)} here: the installation is not whole")
    try:
        found = {
            name: dashboards.parse(_text(environment, name, variables), name)
            for name in sources
            if PurePosixPath(name).parts[0] == dashboards.FOLDER
        }
        variables["panel_of"] = dashboards.places(found)
    except dashboards.DashboardError as error:
        raise RenderError(str(error)) from error
    files: dict[PurePosixPath, str] = {}
    for name in sources:
        path = PurePosixPath(name)
        if name in found:
            files[path.with_name(path.name.removesuffix(dashboards.SUFFIX) + ".json")] = dashboards.written(
                found[name]
            )
        elif path.suffix == SUFFIX:
            files[path.with_suffix("")] = _text(environment, name, variables)
        else:
            files[path] = (root / name).read_text(encoding="utf-8")
    return dict(sorted(files.items()))


def _text(environment: jinja2.Environment, name: str, variables: Mapping[str, Any]) -> str:
    try:
        return environment.get_template(name).render(variables)
    except jinja2.TemplateSyntaxError as error:
        raise RenderError(f"{error.name}:{error.lineno}: {error.message}") from error
    except jinja2.TemplateError as error:
        raise RenderError(f"{name}: {error.message}") from error


def select(files: Files, names: tuple[str, ...]) -> dict[PurePosixPath, str]:
    """Return the files named by their path or file name, all without a name. Raises RenderError."""
    chosen: dict[PurePosixPath, str] = {}
    for name in names:
        paths = [path for path in files if name in (str(path), path.name)]
        if len(paths) > 1:
            raise RenderError(f'"{name}" is more than one file: {", ".join(map(str, paths))}')
        if not paths:
            known = [word for path in files for word in (path.name, str(path))]
            close = difflib.get_close_matches(name, known, n=1, cutoff=0)
            raise RenderError(f'no file "{name}"; the closest is "{close[0]}"')
        chosen[paths[0]] = files[paths[0]]
    return chosen if names else dict(files)


def changed(files: Files, out: Path) -> dict[PurePosixPath, str | None]:
    """Return the files that `out` has otherwise or not at all, with the text it has now. Raises OSError."""
    found: dict[PurePosixPath, str | None] = {}
    for path, text in files.items():
        try:
            now = (out / path).read_bytes()
        except FileNotFoundError:
            found[path] = None
            continue
        if now != text.encode():
            found[path] = now.decode(errors="replace")
    return found


def diff(files: Files, out: Path) -> str:
    """Return a unified diff from what `out` has to what would be written there; "" when nothing would. Raises OSError."""
    hunks: list[str] = []
    for path, now in changed(files, out).items():
        hunks += difflib.unified_diff(
            (now or "").splitlines(keepends=True),
            files[path].splitlines(keepends=True),
            "/dev/null" if now is None else str(out / path),
            str(out / path),
        )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in hunks
    )


def write(files: Files, out: Path) -> list[PurePosixPath]:
    """Write what differs and return its paths. Each file is replaced whole, none before all are on the disk. Raises OSError."""
    paths = list(changed(files, out))
    staged: list[tuple[Path, Path]] = []
    try:
        for path in paths:
            target = out / path
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.with_name(f".{target.name}.{os.getpid()}")
            staged.append((temporary, target))
            with temporary.open("wb") as staging:
                staging.write(files[path].encode())
                staging.flush()
                os.fsync(staging.fileno())
            if target.exists():
                shutil.copymode(target, temporary)
        for temporary, target in staged:
            temporary.replace(target)
    finally:
        for temporary, _ in staged:
            temporary.unlink(missing_ok=True)
    return paths


def _sources(root: Path) -> list[str]:
    found = [
        *root.glob(f"alerts/**/*{SUFFIX}"),
        *root.glob(f"{dashboards.FOLDER}/*{dashboards.SUFFIX}"),
        *root.glob(f"deploy/**/*{SUFFIX}"),
        *root.glob("runbooks/*.md"),
    ]
    return sorted(path.relative_to(root).as_posix() for path in found)


@functools.lru_cache(maxsize=4)
def _environment(root: Path) -> jinja2.Environment:
    """Make the bundle's Jinja2, whose delimiters leave Prometheus' and Alertmanager's own {{ }} untouched.

    It is kept, for compiling the templates is most of a rendering; one that has changed is compiled anew.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(root),
        variable_start_string="[[",
        variable_end_string="]]",
        block_start_string="[%",
        block_end_string="%]",
        comment_start_string="[#",
        comment_end_string="#]",
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        finalize=_number,
        autoescape=False,
    )
    environment.filters["duration"] = duration
    environment.filters["le"] = floatToGoString
    environment.filters["number"] = _number
    environment.filters["quoted"] = json.dumps
    environment.filters["regex"] = re.escape
    environment.filters["yaml"] = yaml.safe_load
    return environment


def duration(seconds: int) -> str:
    """Write a time as Prometheus does, in the largest unit that divides it: 15s, 5m, 1h."""
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _number(value: Any) -> Any:
    """Write a whole number without a fraction, however the settings hold it: 60, not 60.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
