"""The catalogue of alerts (alerts/catalogue.yaml): an entry each, from which rules, routes, messages and the manual are rendered."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import yaml
from msgspec import Meta

from omniwatch.bundle import data
from omniwatch.bundle.yaml_text import load_yaml
from omniwatch.system.errors import UserError

FILE = "alerts/catalogue.yaml"
OWN_CAUSE = "A page explains the tickets of its own cause."
Text = Annotated[str, Meta(min_length=1)]
Fault = Literal["speech", "server", "sight", "device"]


class CatalogueError(UserError):
    """A catalogue that cannot be read or does not hold."""


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The alerts that all of these fields fit; "" and () fit any."""

    fault: Fault | Literal[""] = ""
    severity: Literal["page", "ticket", ""] = ""
    alerts: tuple[Text, ...] = ()


class Explained(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an alert explains, where its label `cause` is one of `causes` (none given: any)."""

    targets: Annotated[tuple[Target, ...], Meta(min_length=1)]
    why: Text = OWN_CAUSE
    causes: tuple[Text, ...] = ()
    any_cause_of_one_source: bool = False
    within: Literal["device", "site"] = "device"


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of the failure table."""

    failure: Text
    area: Text
    tests: Annotated[tuple[Text, ...], Meta(min_length=1)]
    cause: str = ""
    seen_s: Annotated[int, Meta(ge=0)] = 0


class FirstMinute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the head of an alert's page says in Chinese."""

    morning: Text
    who: Text
    picture: Text
    expected: Text


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One alert. The head of the file says what the fields are."""

    severity: Literal["page", "ticket", "none"]
    why: Text
    summary: Text
    summary_zh: Text
    first_60_zh: FirstMinute
    failures: Annotated[tuple[Failure, ...], Meta(min_length=1)]
    fault: Fault | Literal[""] = ""
    rank: int | None = None
    explains: tuple[Explained, ...] = ()
    symptoms: tuple[Text, ...] = ()

    def __post_init__(self) -> None:
        if (self.rank is None) == (self.severity == "page"):
            raise ValueError("a page, and no other alert, has a rank")
        if (not self.fault) != (self.severity == "none"):
            raise ValueError("a page and a ticket have a fault, a heartbeat has none")


class Catalogue(dict[str, Entry]):
    """Entries by the alert's name; a name without one raises CatalogueError."""

    def __missing__(self, name: str) -> Entry:
        raise CatalogueError(f"{FILE}: no entry {name}")


class Inhibition(NamedTuple):
    """Alerts that explain the same."""

    sources: list[str]
    explained: Explained


def load(root: Path | None = None) -> Catalogue:
    """Read the catalogue of these data folders. Raises CatalogueError."""
    try:
        text = ((root or data.root()) / FILE).read_text(encoding="utf-8")
    except OSError as error:
        raise CatalogueError(f"{FILE}: {error.strerror}") from error
    return _parsed(text)


@functools.lru_cache(maxsize=4)
def _parsed(text: str) -> Catalogue:
    try:
        entries = Catalogue(msgspec.convert(load_yaml(text), dict[str, Entry]))
    except (yaml.YAMLError, ValueError) as error:
        raise CatalogueError(f"{FILE}: {' '.join(str(error).split())}") from error
    ranks = [entry.rank for entry in entries.values() if entry.rank is not None]
    if len(ranks) != len(set(ranks)):
        raise CatalogueError(f"{FILE}: two pages have the same rank")
    for name, entry in entries.items():
        targets = {other for one in entry.explains for target in one.targets for other in target.alerts}
        if unknown := sorted(targets - set(entries)):
            raise CatalogueError(f"{FILE}: {name} explains {unknown[0]}, which has no entry")
    return entries


def worst_first(catalogue: Catalogue) -> list[str]:
    """Return the pages in the order in which a message lists them."""
    ranks = {name: entry.rank for name, entry in catalogue.items() if entry.rank is not None}
    return sorted(ranks, key=ranks.__getitem__)


def by_fault(catalogue: Catalogue) -> dict[str, list[str]]:
    """Return the alerts of each kind of fault."""
    found: dict[str, list[str]] = {}
    for name, entry in catalogue.items():
        if entry.fault:
            found.setdefault(entry.fault, []).append(name)
    return dict(sorted(found.items()))


def inhibitions(catalogue: Catalogue) -> list[Inhibition]:
    """Return what explains what, each once with all its sources: whole faults first, then alerts by name."""
    sources: dict[Explained, list[str]] = {}
    for name in worst_first(catalogue):
        for explained in catalogue[name].explains:
            sources.setdefault(explained, []).append(name)
    found = [Inhibition(names, explained) for explained, names in sources.items()]
    return sorted(found, key=lambda one: not one.explained.targets[0].fault)
