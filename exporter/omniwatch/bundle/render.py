"""Render the data folders with a site's settings: pure, but for `changed` and `write`, which meet the disk."""

from __future__ import annotations

import difflib
import functools
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from decimal import Decimal
from pathlib import Path, PurePath, PurePosixPath
from types import MappingProxyType
from typing import Any

import jinja2
from prometheus_client.utils import floatToGoString

from omniwatch.bundle import catalogue, dashboards, data, profiles
from omniwatch.bundle.dashboards import Place
from omniwatch.bundle.yaml_text import load_yaml
from omniwatch.settings import Settings
from omniwatch.system import rooted
from omniwatch.system.closest import closest
from omniwatch.system.errors import UserError

Files = Mapping[PurePosixPath, str]
"""A rendered bundle: the text of each file by its path below the output directory."""
SUFFIX = ".j2"


class RenderError(UserError):
    """A template or a name that does not hold."""


class _PanelOf(Mapping[str, Place]):
    """The panel that shows each alert; the dashboards are read when the first is asked for."""

    def __init__(self, places: Callable[[], dict[str, Place]]) -> None:
        self._places = places

    def __getitem__(self, alert: str) -> Place:
        return self._places()[alert]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places())

    def __len__(self) -> int:
        return len(self._places())


def render(
    settings: Settings,
    root: Path | None = None,
    only: Collection[PurePosixPath] | None = None,
    *,
    is_cluster: bool = False,
) -> dict[PurePosixPath, str]:
    """Render every template below alerts/ and deploy/, expand the dashboards to Grafana's JSON and add the runbooks as
    they are, in the order of their paths. With `only`, these files of `paths` alone.

    The templates' variables are:

    - the fields of `settings`; a webhook that is not set is the bridge's
    - `defaults`: the settings' defaults
    - `is_cluster`: whether Prometheus scrapes the nodes of a Kubernetes cluster, not one device
    - `profile`: the model server's
    - `panel_of`: by an alert's name the panel that shows it
    - `catalogue` of alerts, and its `worst_first`, `by_fault` and `inhibitions`

    The same settings give the same bytes. Raises RenderError.
    """
    root = root or data.root()
    sources = _sources(root)
    environment = _environment(root)
    variables: dict[str, Any] = {name: getattr(settings, name) for name in settings.__struct_fields__}
    variables |= {"defaults": Settings(), "is_cluster": is_cluster}
    try:
        variables["catalogue"] = alerts = catalogue.load(root)
    except catalogue.CatalogueError as error:
        raise RenderError(str(error)) from error
    variables["worst_first"] = catalogue.worst_first(alerts)
    variables["by_fault"] = catalogue.by_fault(alerts)
    variables["inhibitions"] = catalogue.inhibitions(alerts)
    variables["receivers"] = settings.receivers.beside(settings.notify)
    if (root / profiles.FOLDER).is_dir():
        try:
            profile = profiles.load(settings.server.profile, root)
            # What is published is rendered on any device, with a warning (`profiles.too_large`); install refuses it.
            if not profile.published:
                profile = profiles.fitting(profile.name, settings.server.device_memory_gb, root)
            variables["profile"] = profile
        except profiles.ProfileError as error:
            raise RenderError(str(error)) from error

    @functools.cache
    def dashboard(name: str) -> dashboards.Dashboard:
        return dashboards.parse(_text(environment, name, variables), name)

    @functools.cache
    def places() -> dict[str, Place]:
        return dashboards.places({name: dashboard(name) for name in sources.values() if _is_dashboard(name)})

    variables["panel_of"] = _PanelOf(places)
    files: dict[PurePosixPath, str] = {}
    try:
        if only is None:
            places()
        for path, name in sources.items():
            if only is not None and path not in only:
                continue
            if _is_dashboard(name):
                files[path] = dashboards.written(dashboard(name))
            elif name.endswith(SUFFIX):
                files[path] = _text(environment, name, variables)
            else:
                files[path] = (root / name).read_text(encoding="utf-8")
    except dashboards.DashboardError as error:
        raise RenderError(str(error)) from error
    return files


def paths(root: Path | None = None) -> list[PurePosixPath]:
    """Return the path of every file there is to render, in order. Raises RenderError."""
    return list(_sources(root or data.root()))


def _text(environment: jinja2.Environment, name: str, variables: Mapping[str, Any]) -> str:
    try:
        return environment.get_template(name).render(variables)
    except jinja2.TemplateSyntaxError as error:
        raise RenderError(f"{error.name}:{error.lineno}: {error.message}") from error
    except jinja2.TemplateError as error:
        raise RenderError(f"{name}: {error.message}") from error
    except catalogue.CatalogueError as error:
        raise RenderError(str(error)) from error


def select(known: Collection[PurePosixPath], names: tuple[str, ...]) -> list[PurePosixPath]:
    """Return the paths that are named, each once: by path, file name or a glob of either. Raises RenderError.

    A glob's * stands for any text without a slash.
    """
    chosen: dict[PurePosixPath, None] = {}
    for name in names:
        is_glob = any(sign in name for sign in "*?[")
        found = [path for path in known if (path.match(name) if is_glob else name in (str(path), path.name))]
        if len(found) > 1 and not is_glob:
            raise RenderError(f'"{name}" is more than one file: {", ".join(map(str, found))}')
        if not found:
            raise RenderError(
                f'no file "{name}"; {_hint(known, name)}' if not is_glob else f'no file is like "{name}"'
            )
        chosen.update(dict.fromkeys(found))
    return list(chosen)


def _hint(known: Collection[PurePosixPath], name: str) -> str:
    if any(path.is_relative_to(name) for path in known):
        return f'the files of that folder are "{name.rstrip("/")}/*"'
    close = closest(name, [str(path) if "/" in name else path.name for path in known])
    return f'the closest is "{close}"' if close else "`omniwatch render --out DIR --dry-run` lists all"


def changed(files: Files, out: PurePath, root: Path = Path("/")) -> dict[PurePosixPath, str | None]:
    """Return the files that `out`, a folder below the root, has otherwise or not at all, with the text it has now. Raises OSError."""
    found: dict[PurePosixPath, str | None] = {}
    for path, text in files.items():
        try:
            now = rooted.read(root, _absolute(out) / path)
        except FileNotFoundError:
            found[path] = None
            continue
        if now != text.encode():
            found[path] = now.decode(errors="replace")
    return found


def diff(files: Files, out: PurePath, root: Path = Path("/"), shown: Callable[[str], str] = str) -> str:
    """Return a unified diff from what `out` has to what would be written there; "" when nothing would. Raises OSError.

    `shown` takes out of a text what may not be shown.
    """
    hunks: list[str] = []
    named = out if root == Path("/") else rooted.shown(root, _absolute(out))
    for path, now in changed(files, out, root).items():
        before, after = shown(now or ""), shown(files[path])
        if before == after:
            hunks.append(f"{named / path}: differs in a secret, which is not shown\n")
            continue
        hunks += difflib.unified_diff(
            before.splitlines(keepends=True),
            after.splitlines(keepends=True),
            "/dev/null" if now is None else str(named / path),
            str(named / path),
        )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in hunks
    )


def write(
    files: Files,
    out: PurePath,
    root: Path = Path("/"),
    readers: Mapping[PurePosixPath, int] = MappingProxyType({}),
) -> list[PurePosixPath]:
    """Write what differs and return its paths. Each file is replaced whole, none before all are on the disk. Raises OSError.

    The files in `readers` can be read by their owner and this group alone, from their first byte on.
    """
    paths = list(changed(files, out, root))
    with rooted.replacing_all(root) as stage:
        for path in paths:
            target = _absolute(out) / path
            rooted.make_folders(root, target.parent)
            mode = 0o640 if path in readers else None
            stage(target, files[path].encode(), mode=mode, group=readers.get(path), durable=True)
    return paths


def _absolute(out: PurePath) -> PurePosixPath:
    return PurePosixPath(Path(out).absolute())


def _sources(root: Path) -> dict[PurePosixPath, str]:
    """Return the source of each rendered file, in the order of their paths. Raises RenderError."""
    found = [
        *root.glob(f"alerts/**/*{SUFFIX}"),
        *root.glob(f"{dashboards.FOLDER}/*{dashboards.SUFFIX}"),
        *root.glob(f"deploy/**/*{SUFFIX}"),
        *root.glob("runbooks/*.md"),
    ]
    if not found:
        raise RenderError(f"{root}: no {', '.join(data.FOLDERS)} here: the installation is not whole")
    names = [path.relative_to(root).as_posix() for path in found]
    return dict(sorted((_rendered_path(name), name) for name in names))


def _is_dashboard(name: str) -> bool:
    return name.startswith(f"{dashboards.FOLDER}/")


def _rendered_path(name: str) -> PurePosixPath:
    if _is_dashboard(name):
        return PurePosixPath(name.removesuffix(dashboards.SUFFIX) + ".json")
    return PurePosixPath(name.removesuffix(SUFFIX))


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
    environment.filters["quoted"] = quoted
    environment.filters["regex"] = re.escape
    environment.filters["unit"] = lambda text: text.replace("%", "%%")
    environment.filters["yaml"] = functools.lru_cache(load_yaml)
    return environment


def quoted(text: str) -> str:
    """Write a string as YAML, PromQL and Go's templates all read it: half a surrogate pair, which JSON has, none of them does."""
    plain = json.dumps(text, ensure_ascii=False)
    if plain.isprintable():
        return plain
    return "".join(
        one if one.isprintable() else f"\\u{ord(one):04x}" if ord(one) < 0x10000 else f"\\U{ord(one):08x}"
        for one in plain
    )


def duration(seconds: int) -> str:
    """Write a time as Prometheus does, in the largest unit that divides it: 15s, 5m, 1h."""
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _number(value: Any) -> Any:
    """Write a number as YAML, PromQL and people read it, however the settings hold it: 60, not 60.0, and 0.00001, not 1e-05."""
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    return int(value) if value.is_integer() else f"{Decimal(repr(value)):f}"
