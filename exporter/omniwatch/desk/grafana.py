"""Push, compare and pull dashboards over Grafana's API. A dashboard changed by hand is overwritten only with --force.

Each push leaves its mark, a hash of what was pushed, as the message of the version that Grafana keeps. A dashboard whose
newest version has no such message was changed by somebody else since.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from omniwatch.bundle.dashboards import DashboardError

try:
    import niquests
    from grafana_client.api import GrafanaApi
    from grafana_client.client import GrafanaClientError, GrafanaException
except ImportError as error:  # the extra is not installed
    raise ImportError(
        "omniwatch dashboards needs grafana-client: pip install 'omniwatch[grafana]'"
    ) from error

Model = dict[str, Any]
Decoded = TypeVar("Decoded")
MARK = "omniwatch "
_MARKED = re.compile(rf"{MARK}[0-9a-f]{{16}}")
TIMEOUT_S = 20.0
OWN_FIELDS = ("id", "version", "iteration")
"""What Grafana adds to a dashboard of its own accord."""


class GrafanaError(DashboardError):
    """Grafana cannot be reached, refuses, or answers what it should not."""


class State(Enum):
    """How a dashboard in Grafana stands to the one that was rendered."""

    ABSENT = "absent"
    SAME = "unchanged"
    OLDER = "older"
    EDITED = "edited by hand"


class Held(msgspec.Struct):
    """What Grafana has under a uid: its model (None: nothing) and version, and who saved that and when."""

    state: State
    model: Model | None = None
    version: int = 0
    saved_by: str = ""
    saved_at: str = ""


class Pushed(NamedTuple):
    """What became of one dashboard: "create", "update", "unchanged" or "refused", and why."""

    action: str
    reason: str = ""


class Folder(msgspec.Struct):
    """A folder; without a uid, one that is yet to be made."""

    title: str
    uid: str = ""


class _Meta(msgspec.Struct, rename="camel"):
    updated_by: str = "?"
    updated: str = "?"


class _Found(msgspec.Struct):
    dashboard: Model
    meta: _Meta


class _Version(msgspec.Struct):
    message: str = ""


class Grafana:
    """One Grafana and who asks. It and every method raise GrafanaError."""

    def __init__(self, url: str, token: str) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise GrafanaError(f'"{url}" is no address of a Grafana: {error}') from error
        if not parts.hostname or any(character.isspace() for character in url):
            raise GrafanaError(f'"{url}" is no address of a Grafana: expected http://HOST[:PORT][/PATH]')
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        prefix = parts.path.strip("/")
        self._api: Any = GrafanaApi(
            token,
            host=f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname,
            port=port,
            protocol=parts.scheme,
            url_path_prefix=f"{prefix}/" if prefix else "",
            timeout=TIMEOUT_S,
        )

    def folder(self, title: str) -> Folder:
        """Find a folder by its title; without a uid where there is none."""
        found = self._ask(list[Folder], self._api.folder.get_all_folders)
        return next((folder for folder in found or [] if folder.title == title), Folder(title))

    def make_folder(self, title: str) -> Folder:
        """Make a folder."""
        return self._ask(Folder, self._api.folder.create_folder, title) or Folder(title)

    def held(self, wanted: Model) -> Held:
        """Compare what Grafana has with a rendered dashboard."""
        uid = wanted["uid"]
        found = self._ask(_Found, self._api.dashboard.get_dashboard, uid, absent=404)
        if found is None:
            return Held(State.ABSENT)
        version = int(found.dashboard.get("version") or 0)
        read = self._api.dashboard_versions.get_dashboard_version_by_uid
        kept = self._ask(_Version, read, uid, version, absent=404)
        message = kept.message if kept else ""
        if plain(found.dashboard) == plain(wanted) or message == mark(wanted):
            state = State.SAME
        else:
            state = State.OLDER if _MARKED.fullmatch(message) else State.EDITED
        return Held(state, found.dashboard, version, found.meta.updated_by, found.meta.updated)

    def push(self, wanted: Model, folder: Folder, *, force: bool = False, dry_run: bool = False) -> Pushed:
        """Write one dashboard, unless it is there already, or changed by hand and not `force`."""
        held = self.held(wanted)
        if held.state is State.SAME:
            return Pushed("unchanged")
        if held.state is State.EDITED and not force:
            return Pushed(
                "refused", f"changed by {held.saved_by} at {held.saved_at} (version {held.version})"
            )
        action = "create" if held.state is State.ABSENT else "update"
        if dry_run:
            return Pushed(action)
        body: Model = {
            "dashboard": {**wanted, "id": None, "version": held.version},
            "folderUid": folder.uid,
            "message": mark(wanted),
            # With the version that was looked at, so that a save in between is not lost either.
            "overwrite": False,
        }
        if self._ask(Model, self._api.dashboard.update_dashboard, body, absent=412) is None:
            return Pushed("refused", "saved by somebody else just now, or its title is taken in this folder")
        return Pushed(action)

    def _ask(
        self, kind: type[Decoded], call: Callable[..., Any], *arguments: object, absent: int = 0
    ) -> Decoded | None:
        """Return the answer as what it should be; None for the status `absent`."""
        with self._words():
            try:
                return msgspec.convert(call(*arguments), kind)
            except GrafanaClientError as error:
                if error.status_code != absent:
                    raise
        return None

    @contextmanager
    def _words(self) -> Iterator[None]:
        try:
            yield
        except GrafanaException as error:
            hint = {401: " (is the token right?)", 403: " (may the token write here?)"}
            words = " ".join(str(error.message).split()) or "no answer in time"
            raise GrafanaError(f"{self.url}: {words}{hint.get(error.status_code, '')}") from error
        except (niquests.exceptions.JSONDecodeError, msgspec.ValidationError) as error:
            raise GrafanaError(f"{self.url}: this does not answer as Grafana does") from error
        except (niquests.exceptions.RequestException, OSError, ValueError) as error:
            raise GrafanaError(f"{self.url}: cannot be reached: {_cause(error)}") from error


def plain(model: Mapping[str, Any]) -> Model:
    """Return a dashboard without what Grafana adds to it."""
    return {name: value for name, value in model.items() if name not in OWN_FIELDS}


def mark(model: Model) -> str:
    """Return the message that a version with this content is saved under."""
    return MARK + hashlib.sha256(json.dumps(plain(model), sort_keys=True).encode()).hexdigest()[:16]


def diff(held: Held, wanted: Model) -> str:
    """Return a unified diff from what Grafana has to what was rendered; "" when nothing would change."""
    if held.state is State.SAME:
        return ""
    lines = [] if held.model is None else _lines(held.model)
    names = (f"grafana/{wanted['uid']}", f"rendered/{wanted['uid']}")
    return "".join(difflib.unified_diff(lines, _lines(wanted), *names))


def _lines(model: Model) -> list[str]:
    text = json.dumps(plain(model), ensure_ascii=False, indent=2, sort_keys=True)
    return f"{text}\n".splitlines(keepends=True)


def _cause(error: BaseException) -> str:
    """Return the system's own words where an error has them."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.strerror:
            return inner.strerror
        inner = inner.__cause__ or inner.__context__
    return " ".join(str(error).split())
