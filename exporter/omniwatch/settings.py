"""omniwatch.yaml as typed settings: every threshold has its one home here, and a default that needs no file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec
import yaml
from msgspec import Meta, inspect

from omniwatch.fleet_settings import Fleet, Label
from omniwatch.receivers import Notify, Receivers
from omniwatch.thresholds import (
    Device,
    Early,
    ModelServer,
    Objective,
    Positive,
    Resumption,
    Share,
    SidecarAlerts,
    short_windows,
)
from omniwatch.totals import RTT_EDGES

PCM_BYTES_PER_S = 48_000
"""24 kHz, 16 bits, one channel: the model's speech."""


class SettingsError(ValueError):
    """The settings do not hold; the message is one line: file, path of the setting, what was wrong."""


class Streams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How live streams are followed and how the listener's player is modelled."""

    playout_buffer_ms: Annotated[float, Meta(ge=0, le=10_000)] = 80
    """What a client holds back before it starts to play."""
    stale_after_s: Positive = 60
    """A stream that says nothing for so long takes its series away."""
    max_streams: Annotated[int, Meta(ge=1, le=4096)] = 64
    """How many streams get series of their own (the values of the label `stream`)."""
    codebook_bits: Annotated[int, Meta(ge=1, le=16)] = 11
    """Bits a codec code may use: 2048 entries a codebook. 16 switches the check off."""


class Frames(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The frame protocol's windows and thresholds; the seeds' names."""

    frame_ms: Positive = 80
    """One codec frame at 12.5 Hz."""
    cache_win: Annotated[int, Meta(ge=1, le=100_000)] = 75
    """Frames the server keeps (6 s)."""
    client_win: Annotated[int, Meta(ge=1, le=100_000)] = 150
    """Frames the client keeps (12 s)."""
    rtx_thr: Annotated[int, Meta(ge=1, le=1000)] = 3
    """So many frames lost in a row are asked for again."""
    drift_ms: Positive = 40
    """Drift past which audio is forced back onto the picture, as texts have it. Who does it, client or server, has its own."""


class Resume(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long and how much of a turn the model server's side holds for a client that lost the network."""

    grace_s: Positive = 30
    """A client that is away for longer is not waited for: its turn is cancelled."""
    heartbeat_s: Positive = 0.25
    """A stream with nothing to say says so this often, so that a client can tell a slow model from a lost network."""
    event_streams: bool = True
    """Whether a client that accepts `text/event-stream` by name gets ids and can come back, too. False: only one that asks
    for binary frames."""
    max_streams: Annotated[int, Meta(ge=1, le=4096)] = 64
    """Turns at once, those held for clients that are away included."""
    turn_bytes: Annotated[int, Meta(ge=65_536)] = 8 * 2**20
    """A turn is held whole up to this size (174 s of 24 kHz speech), past it only its last `frames.cache_win`."""
    total_bytes: Annotated[int, Meta(ge=65_536)] = 64 * 2**20
    """All turns together."""
    resumes_per_s: Positive = 5
    resumes_burst: Positive = 10
    """Resumes of one stream: so many at once, so many a second."""
    rtx_per_s: Positive = 10
    rtx_burst: Positive = 20
    """Retransmissions and reports of one stream."""
    misses_per_s: Positive = 1
    misses_burst: Positive = 10
    """Requests of one address that name no stream: past these it is answered no more."""


class Alerts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a person is woken. A `_for_s` is how long the condition must hold first."""

    drift_page_ms: Positive = 60
    drift_for_s: Annotated[int, Meta(ge=0)] = 15
    rtt_page_ms: Positive = 800
    rtt_for_s: Annotated[int, Meta(ge=0)] = 20
    red_line_ms: Positive = 750
    """The answer a user should get: an objective, not a page."""
    turns_share: Share = 0.2
    """Page when more than this share of turns was out of sync …"""
    turns_min: Annotated[int, Meta(ge=1)] = 3
    """… of at least so many turns …"""
    turns_window_s: Annotated[int, Meta(ge=1)] = 300
    """… in this time."""
    scrape_interval_s: Annotated[int, Meta(ge=1)] = 1
    evaluation_interval_s: Annotated[int, Meta(ge=1)] = 5
    """How often rules are evaluated, by Prometheus and in their unit tests alike."""

    def __post_init__(self) -> None:
        """Refuse a window that holds too few samples to count turns in."""
        shortest = 4 * max(self.scrape_interval_s, self.evaluation_interval_s)
        if self.turns_window_s < shortest:
            raise ValueError(
                f"turns_window_s: expected a whole number >= {shortest}, four scrapes and evaluations, "
                f"got {self.turns_window_s}"
            )
        edges_ms = [round(edge * 1000) for edge in RTT_EDGES]
        if self.red_line_ms not in edges_ms:
            raise ValueError(
                f"red_line_ms: expected an edge of omni_token_rtt_seconds, {edges_ms}, got {self.red_line_ms:g}"
            )


class Site(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Addresses that the rendered files name."""

    exporter: str = "127.0.0.1:9842"
    alertmanager: str = "127.0.0.1:9093"
    device: Label = "orin"
    """What this device is called in its alerts: one name a device, whatever runs on it."""
    model_server: str = "127.0.0.1:8000"
    """Where the model server has its own /metrics; empty, it is not scraped and never said to be down."""
    runbook_base_url: str = "https://github.com/omniwatch/omniwatch/blob/main/runbooks"


class Grafana(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the dashboards go, pushed over its API or found by its provisioning."""

    url: Annotated[str, Meta(pattern="^https?://[^/]")] = "http://127.0.0.1:3000"
    folder: Annotated[str, Meta(min_length=1)] = "Omniwatch"
    """Title of the folder that holds them."""
    prometheus_url: Annotated[str, Meta(pattern="^https?://[^/]")] = "http://127.0.0.1:9090"
    """Prometheus, as Grafana reaches it."""
    dashboards_dir: Annotated[str, Meta(pattern="^/")] = "/var/lib/grafana/dashboards/omniwatch"
    """Where a Grafana that provisions them finds the rendered files."""


class Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model server this device runs, as systemd knows it."""

    unit: Annotated[str, Meta(pattern=r"^[A-Za-z0-9:_.@\\-]+\.(service|scope|slice)$")] = "qwen3-omni.service"
    """Its unit: whose CPU limits, restarts and state are watched."""
    container_id_file: str = "/run/qwen3-omni/container.id"
    """Where a unit that starts a container leaves its id (docker run --cidfile): its cgroup is the container's."""
    profile: str = "orin"
    """How it is started: a file of deploy/profiles/."""
    device_memory_gb: Positive = 64
    """Memory of the device, CPUs' and GPU's together; a profile that needs more is refused."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of omniwatch.yaml."""

    sources: Annotated[list[str], Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: ["tail:/run/omniwatch/events.jsonl"]
    )
    """Where events come from when the command line names no source."""
    streams: Streams = Streams()
    frames: Frames = Frames()
    resume: Resume = Resume()
    alerts: Alerts = Alerts()
    early: Early = Early()
    objective: Objective = Objective()
    model_server: ModelServer = ModelServer()
    sidecar: SidecarAlerts = SidecarAlerts()
    resumption: Resumption = Resumption()
    device: Device = Device()
    receivers: Receivers = Receivers()
    notify: Notify = Notify()
    site: Site = Site()
    fleet: Fleet = Fleet()
    grafana: Grafana = Grafana()
    server: Server = Server()

    def __post_init__(self) -> None:
        """Refuse windows of the alerts that hold too few samples to count in, and memory that holds no window of frames."""
        shortest = 4 * max(self.alerts.scrape_interval_s, self.alerts.evaluation_interval_s)
        for group in ("early", "objective", "model_server", "sidecar", "resumption", "device"):
            if wrong := short_windows(group, getattr(self, group), shortest):
                raise ValueError(wrong)
        window_bytes = self.frames.cache_win * self.frames.frame_ms / 1000 * PCM_BYTES_PER_S
        for name in ("turn_bytes", "total_bytes"):
            if getattr(self.resume, name) < window_bytes:
                raise ValueError(
                    f"resume.{name}: expected a whole number >= {window_bytes:.0f}, frames.cache_win frames of 24 kHz "
                    f"PCM16, got {getattr(self.resume, name)}"
                )


def load(path: Path | None) -> Settings:
    """Read settings from a YAML file; without a path, the defaults. Raises SettingsError."""
    if path is None:
        return Settings()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return parse(text, path.name)


def parse(text: str, name: str = "omniwatch.yaml") -> Settings:
    """Validate YAML text. Raises SettingsError that names the setting, what it takes and what it got."""
    try:
        raw = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SettingsError(f"{name}: {' '.join(str(error).split())}") from error
    try:
        return msgspec.convert({} if raw is None else raw, Settings)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{name}: {explain(str(error), raw, Settings)}") from error


def explain(message: str, raw: Any, of: type) -> str:
    """Turn msgspec's message ("Expected `float`, got `str` - at `$.alerts.x`") into one for a user of YAML.

    `raw` is what did not convert to `of`.
    """
    what, _, where = message.partition(" - at `$")
    steps = where.rstrip("`").replace("[", ".[").strip(".").split(".")
    value, kind, path = raw, inspect.type_info(of), ""
    for step in filter(None, steps):
        if isinstance(kind, inspect.StructType):
            value = value[step]
            kind = next(field.type for field in kind.fields if field.name == step)
        elif isinstance(kind, inspect.ListType):
            value, kind = list(value)[int(step.strip("[]"))], kind.item_type
        path += step if step.startswith("[") or not path else f".{step}"
    if not what.startswith(("Expected ", "Object ")):
        return f"{path}.{what}".removeprefix(".")
    if what.startswith("Object "):
        field, problem = what.split("`")[1], "no such setting" if "unknown field" in what else "is missing"
        return f"{path + '.' if path else ''}{field}: {problem}"
    got = value if isinstance(value, (str, int, float)) else type(value).__name__
    return f"{path + ': ' if path else ''}expected {_expected(kind)}, got {json.dumps(got)}"


def _expected(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.UnionType):
        kind = next(one for one in kind.types if not isinstance(one, inspect.NoneType))
    words = {
        inspect.FloatType: "a number",
        inspect.IntType: "a whole number",
        inspect.StrType: "text",
        inspect.StructType: "a mapping",
        inspect.ListType: "a list",
    }
    bounds = (
        ("gt", ">"),
        ("ge", ">="),
        ("lt", "<"),
        ("le", "<="),
        ("pattern", "like"),
        ("min_length", "of at least"),
        ("max_length", "of at most"),
    )
    limits = (
        f" {sign} {getattr(kind, name, None)}"
        for name, sign in bounds
        if getattr(kind, name, None) is not None
    )
    return words.get(type(kind), type(kind).__name__) + ",".join(limits)
