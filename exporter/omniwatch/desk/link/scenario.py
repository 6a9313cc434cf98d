"""Read scenario files (deploy/link/*.yaml): what a mobile network does to a call."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from omniwatch.bundle import data
from omniwatch.system import user_yaml
from omniwatch.system.errors import UserError

Share = Annotated[float, Meta(ge=0, le=1)]
Milliseconds = Annotated[float, Meta(ge=0, le=60_000)]
Kbit = Annotated[float, Meta(ge=0, le=10_000_000)]
Between = Annotated[float, Meta(ge=0.1, le=86_400)]
"""Seconds from one trouble to the next: what comes more often is no network."""
Duration = Annotated[float, Meta(gt=0, le=60)]


class ScenarioError(UserError):
    """A scenario that does not exist or does not hold."""


class Loss(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Packets (or frames) lost: `share` of all, in bursts of `burst` on average (Gilbert), each for itself without.

    `bad` is the share lost while the channel is bad (Gilbert-Elliott); 1 makes a bad channel lose all.
    """

    share: Annotated[float, Meta(ge=0, lt=1)] = 0.0
    burst: Annotated[float, Meta(ge=1)] | None = None
    bad: Annotated[float, Meta(gt=0, le=1)] = 1.0


class Outage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing passes for `for_s`, once in `every_s`."""

    every_s: Between
    for_s: Duration

    def __post_init__(self) -> None:
        """Refuse an outage without end."""
        if self.for_s >= self.every_s:
            raise ValueError("`for_s` must be less than `every_s`, or nothing ever passes")


class Handover(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From cell to cell: nothing passes for a log-normal time; `failure` of them fail and take longer.

    After `cut` of them the client has another address: its connections are dead and nobody tells it.
    """

    per_minute: Annotated[float, Meta(ge=0.001, le=600)]
    median_ms: Annotated[float, Meta(ge=1, le=60_000)]
    p95_ms: Annotated[float, Meta(ge=1, le=60_000)]
    failure: Share = 0.0
    failure_s: tuple[Duration, Duration] = (1.0, 3.0)
    cut: Share = 1.0


class Cuts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Connections cut with the path itself up, after an exponential time of mean `every_s` each.

    `silent` of them are dead without a word (a network address translation forgotten), the others are reset.
    """

    every_s: Between
    silent: Share = 0.5


class FrameTrouble(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Frame mode, as on datagrams: single frames of speech dropped, repeated, or late by up to `depth` frames."""

    drop: Loss = Loss()
    repeat: Share = 0.0
    reorder: Share = 0.0
    depth: Annotated[int, Meta(ge=1, le=100)] = 3


class Standing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A queue that others fill: packets wait `ms` longer, for `for_s` once in `every_s`."""

    every_s: Between
    for_s: Duration
    ms: Milliseconds

    def __post_init__(self) -> None:
        """Refuse a queue without end."""
        if self.for_s >= self.every_s:
            raise ValueError(
                "`for_s` must be less than `every_s`; a queue that always stands is part of `rtt_ms`"
            )


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One network. Each direction takes half of `rtt_ms`, and up to `jitter_ms` more; 0 kbit/s is without limit.

    `loss` holds for both directions, or `loss_up` for what the client sends. On a real path, a packet that would wait
    longer than `queue_ms` for its rate is dropped; the made-up one lets it wait.
    """

    about: str
    rtt_ms: Milliseconds = 0.0
    jitter_ms: Milliseconds = 0.0
    down_kbit: Kbit = 0.0
    up_kbit: Kbit = 0.0
    queue_ms: Milliseconds = 500.0
    standing_up: Standing | None = None
    loss: Loss = Loss()
    loss_up: Loss | None = None
    outage: Outage | None = None
    handover: Handover | None = None
    cuts: Cuts | None = None
    frames: FrameTrouble | None = None

    def __post_init__(self) -> None:
        """Refuse a rate at which a packet takes hours."""
        if 0 < self.down_kbit < 1 or 0 < self.up_kbit < 1:
            raise ValueError("`down_kbit` and `up_kbit` must be 1 or more, or 0 for no limit")


def folder() -> Path:
    """Return where the scenario files are."""
    return data.root() / "deploy" / "link"


def names() -> list[str]:
    """Return the scenarios there are."""
    return sorted(path.stem for path in folder().glob("*.yaml"))


def load(name: str) -> Scenario:
    """Read a scenario by its name, or from a file by its path. Raises ScenarioError."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else folder() / f"{name}.yaml"
    try:
        return msgspec.convert(user_yaml.load(path), Scenario)
    except FileNotFoundError as error:
        raise ScenarioError(f"{name}: no such scenario; there are {', '.join(names())}") from error
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ScenarioError(f"{path.name}: {' '.join(str(error).split())}") from error
