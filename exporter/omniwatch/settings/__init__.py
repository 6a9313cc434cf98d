"""omniwatch.yaml as typed settings. Every threshold is defined here, with a default."""

from __future__ import annotations

import hashlib
import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, inspect

from omniwatch.settings.alerts import (
    DeviceAlerts,
    Early,
    ModelServer,
    Monitoring,
    Network,
    Objective,
    Rare,
    Resumption,
    SidecarAlerts,
    short_windows,
)
from omniwatch.settings.fleet import Fleet
from omniwatch.settings.histograms import RTT_EDGES
from omniwatch.settings.kinds import (
    PATTERNS,
    AbsolutePath,
    Address,
    Count,
    Hold,
    HostName,
    HttpUrl,
    Label,
    Line,
    OptionalAddress,
    Positive,
    Seconds,
    Share,
    SourceSpec,
    UnitName,
    Url,
    unfit_text,
)
from omniwatch.settings.kubernetes import Kubernetes
from omniwatch.settings.receivers import Notify, Receivers
from omniwatch.system import ports, user_file, user_yaml
from omniwatch.system.errors import UserError

LOCAL_GRAFANA = "http://127.0.0.1:3000"
PROJECT_RUNBOOKS = "https://github.com/omniwatch/omniwatch/blob/main/runbooks"
PCM_BYTES_PER_S = 48_000
"""24 kHz, 16 bits, one channel: the model's speech."""


class SettingsError(UserError):
    """The settings do not hold. The message: file, path of the setting, what was wrong."""


class Streams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How live streams are followed and how the listener's player is modelled."""

    playout_buffer_ms: Annotated[float, Meta(ge=0, le=10_000)] = 80
    """Speech a client holds back before it starts to play."""
    stale_after_s: Positive = 60
    """Time without events after which a stream is dropped, its series with it."""
    client_buffer_ms: Annotated[float, Meta(ge=0, le=600_000)] = 0
    """Speech that a client's buffer holds. A turn that runs further ahead has the symptom `overrun`. 0: clients hold any."""
    away_after_s: Positive = 10
    """Time with speech under way and none arriving after which a listener counts as away: no series, until some arrives."""
    max_streams: Annotated[int, Meta(ge=1, le=4096)] = 64
    """Streams with series of their own: the number of values of the label `stream`."""
    codebook_bits: Annotated[int, Meta(ge=1, le=16)] = 11
    """Bits of a codec code: 11 are 2048 entries a codebook. 16 switches the check off."""


class Frames(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Windows and thresholds of the frame protocol."""

    frame_ms: Annotated[float, Meta(ge=1, le=1000)] = 80
    """Length of one codec frame (12.5 Hz)."""
    cache_win: Annotated[int, Meta(ge=1, le=100_000)] = 75
    """Frames the server keeps for clients that come back: 75 are 6 s."""
    client_win: Annotated[int, Meta(ge=1, le=100_000)] = 150
    """Frames the client keeps: 150 are 12 s."""
    rtx_thr: Annotated[int, Meta(ge=1, le=1000)] = 3
    """Frames lost in a row from which on they are asked for again."""
    drift_ms: Positive = 40
    """Drift past which audio is forced back onto the picture. A client or server that does so has a setting
    of its own."""


class Tap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the tap does in the model server. It reads no settings file: the rendered unit sets its environment."""

    ear: Literal["auto", "kernel", "sent"] = "auto"
    """Whether the kernel is asked what has reached a listener. `auto`: unless a proxy seems to stand in between. `sent`: no, for
    instance behind a load balancer that adds no header. `kernel`: always."""


class Resume(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much of a turn the model server holds, and how long, for a client that lost the network."""

    middleware: bool = False
    """Whether the model server is started with `--middleware omniwatch.resume.Resume`: `omniwatch install` then brings it."""
    grace_s: Annotated[float, Meta(gt=0, le=3600)] = 30
    """Time a client may be away. After it, its turn is cancelled."""
    heartbeat_s: Annotated[float, Meta(ge=0.01, le=60)] = 0.25
    """Pause between signs of life on a connection that has nothing to send, so that a client can tell a slow
    model from a lost network."""
    event_streams: bool = True
    """Whether a client that asks for resumption in server-sent events (`Accept: text/event-stream;omniwatch=resume`) gets
    ids and can come back, too. False: only one that asks for binary frames."""
    opus: bool = True
    """Whether a client that asks for frames in Opus gets them, a tenth of the bytes. False, or where the model server's
    Python lacks PyAV with libopus: PCM."""
    max_streams: Annotated[int, Meta(ge=1, le=4096)] = 64
    """Turns held at once, those of absent clients included."""
    max_streams_per_address: Annotated[int, Meta(ge=1, le=4096)] = 16
    """The same, of clients at one address. Behind a reverse proxy all have its address: there, as many as `max_streams`."""
    turn_bytes: Annotated[int, Meta(ge=65_536, le=2**40)] = 8 * 2**20
    """Size up to which a turn is held whole (8 MiB are 174 s of 24 kHz speech). Past it, only its last
    `frames.cache_win` frames are."""
    total_bytes: Annotated[int, Meta(ge=65_536, le=2**40)] = 64 * 2**20
    """Memory of all turns together."""
    resumes_per_s: Positive = 5
    """Resumes of one stream a second, in the long run."""
    resumes_burst: Positive = 10
    """Resumes of one stream at once."""
    rtx_per_s: Positive = 10
    """Retransmissions and reports of one stream a second, in the long run."""
    rtx_burst: Positive = 20
    """Retransmissions and reports of one stream at once."""
    misses_per_s: Positive = 1
    """Requests a second from one address that name an unknown stream; more are refused."""
    misses_burst: Positive = 10
    """Requests at once from one address that name an unknown stream."""


class Turns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What turns usually are. The first three count until 20 good turns of a kind say what is usual."""

    thinking_ms: Positive = 300
    """Question to first text."""
    voice_ms: Positive = 250
    """First text to first speech."""
    network_ms: Positive = 100
    """First speech handed over to first speech arrived."""
    latin_least_ms: Positive = 25
    """Speech for a character, below which a turn's speech is odd: short for its text. Languages without CJK characters."""
    latin_most_ms: Positive = 200
    """The same, above which it is long. A mixed text has the lesser least and the larger most."""
    cjk_least_ms: Positive = 80
    """Speech for a character of Chinese, Japanese or Korean, below which it is short."""
    cjk_most_ms: Positive = 700
    """The same, above which it is long."""


class Alerts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When the pages of the contract are sent. A `_for_s` is how long a condition must hold first."""

    drift_page_ms: Positive = 60
    """Drift, either way, past which `CodecDrift` pages."""
    drift_for_s: Hold = 15
    """Time the drift must stay past `drift_page_ms` before the page."""
    rtt_page_ms: Positive = 800
    """Round trip past which `TokenRTT` pages."""
    rtt_for_s: Hold = 20
    """Time the round trip must stay past `rtt_page_ms` before the page."""
    rtt_answers: Count = 3
    """Late answers in a row that page: fewer are shown for a shorter time than `rtt_for_s`."""
    red_line_ms: Positive = 750
    """Answer time a user should get: an objective, not a page. It must be an edge of the histogram
    `omni_token_rtt_seconds`."""
    turns_share: Share = 0.2
    """Share of turns out of sync past which `TurnsOutOfSync` pages."""
    turns_min: Count = 3
    """Turns out of sync below which `TurnsOutOfSync` concludes nothing over `turns_window_s`."""
    turns_window_s: Seconds = 300
    """Time over which `TurnsOutOfSync` counts turns: at least four scrapes and evaluations."""
    network_pages: bool = True
    """Whether pages of the contract call somebody where the network, the listener's end or cuts are the leading cause: false, they are
    tickets."""
    scrape_interval_s: Seconds = 1
    """Pause between two scrapes of the sidecar."""
    evaluation_interval_s: Seconds = 5
    """Pause between two evaluations of the rules, in Prometheus and in their unit tests."""

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

    exporter: Address = f"127.0.0.1:{ports.SIDECAR}"
    """Address at which the sidecar serves and Prometheus scrapes it."""
    alertmanager: Address = "127.0.0.1:9093"
    """Address of this device's Alertmanager."""
    device: Label = "orin"
    """Name of this device in its alerts: one name a device, whatever runs on it."""
    model_server: OptionalAddress = "127.0.0.1:8000"
    """Address of the model server's own `/metrics`. Empty: it is not scraped, and no alert says that it is
    down."""
    hosts: list[HostName] = []
    """Names by which browsers reach the sidecar's pages, and Alertmanager the bridge. Addresses, localhost, the host's own name
    and `device` need no entry."""
    live_details: bool = False
    """Whether the live page shows session ids and peers beside the slots. `/streams.json` always has them."""
    runbook_base_url: Url = ""
    """Address below which the runbooks' pages stand, for links in messages, units and dashboards. Empty: a message names
    `omniwatch runbook NAME` instead."""
    access: Line = ""
    """How a person reaches this device, for instance `ssh ops@orin.example`: it stands in each message and runbook. Empty:
    not said."""

    @property
    def centre_runbooks(self) -> str:
        """What a centre's alert links to: it is about no device to run `omniwatch runbook` on."""
        return self.runbook_base_url or PROJECT_RUNBOOKS


class Grafana(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the dashboards go, pushed over its API or found by its provisioning."""

    url: Url = ""
    """Address of Grafana, for links in messages and for its API. Empty: messages link no dashboard, and
    `omniwatch dashboards` takes `http://127.0.0.1:3000`."""
    folder: Annotated[str, Meta(min_length=1)] = "Omniwatch"
    """Title of the folder that holds the dashboards."""
    prometheus_url: HttpUrl = "http://127.0.0.1:9090"
    """Prometheus, as Grafana reaches it."""
    dashboards_dir: AbsolutePath = "/var/lib/grafana/dashboards/omniwatch"
    """Directory in which a provisioned Grafana finds the rendered files."""

    @property
    def api(self) -> str:
        """Where Grafana is looked for: at a centre, which has one, and at a desk."""
        return self.url or LOCAL_GRAFANA


class Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model server this device runs, as systemd knows it."""

    unit: UnitName = "qwen3-omni.service"
    """systemd unit of the model server: its CPU limits, restarts and state are watched."""
    container_id_file: str = "/run/qwen3-omni/container.id"
    """File in which a unit that starts a container leaves its id (`docker run --cidfile`). The cgroup watched
    is then the container's."""
    profile: str = "orin"
    """How the model server is started: a file of `deploy/profiles/`, without `.yaml`."""
    device_memory_gb: Positive = 64
    """Memory of the device, of CPUs and GPU together. A profile that needs more is refused."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of omniwatch.yaml."""

    sources: Annotated[list[SourceSpec], Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: ["tail:/run/omniwatch/events.jsonl"]
    )
    """Sources of events, where the command line names none."""
    streams: Streams = Streams()
    frames: Frames = Frames()
    turns: Turns = Turns()
    tap: Tap = Tap()
    resume: Resume = Resume()
    alerts: Alerts = Alerts()
    early: Early = Early()
    objective: Objective = Objective()
    rare: Rare = Rare()
    network: Network = Network()
    model_server: ModelServer = ModelServer()
    sidecar: SidecarAlerts = SidecarAlerts()
    monitoring: Monitoring = Monitoring()
    resumption: Resumption = Resumption()
    device: DeviceAlerts = DeviceAlerts()
    receivers: Receivers = Receivers()
    notify: Notify = Notify()
    site: Site = Site()
    fleet: Fleet = Fleet()
    grafana: Grafana = Grafana()
    server: Server = Server()
    kubernetes: Kubernetes = Kubernetes()

    def __post_init__(self) -> None:
        """Refuse texts that break what is rendered, windows of the alerts that hold too few samples to count in, and memory
        that holds no window of frames.
        """
        if wrong := unfit_text(self):
            raise ValueError(wrong)
        shortest = 4 * max(self.alerts.scrape_interval_s, self.alerts.evaluation_interval_s)
        for group in (
            "early",
            "objective",
            "rare",
            "network",
            "model_server",
            "sidecar",
            "monitoring",
            "resumption",
            "device",
        ):
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
        content = user_file.read(path, user_yaml.MAX_BYTES)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    return parse(content, path.name)


def digest(settings: Settings) -> str:
    """Return what two settings have in common where they say the same, however their files are written: a SHA-256."""
    # A default may be 60 where a file's value is read as 60.0.
    whole = re.sub(rb"(\d)\.0(?=[,}\]])", rb"\1", msgspec.json.encode(settings))
    return hashlib.sha256(whole).hexdigest()


def parse(text: str | bytes, name: str = "omniwatch.yaml") -> Settings:
    """Validate YAML text. Raises SettingsError that names the setting, what it takes and what it got."""
    try:
        raw = user_yaml.parse(text)
    except user_yaml.YamlError as error:
        raise SettingsError(f"{name}: {error}") from error
    try:
        return msgspec.convert({} if raw is None else raw, Settings)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{name}: {explain(str(error), raw, Settings)}") from error


_shape = lru_cache(maxsize=4)(inspect.type_info)
_OWN = re.compile(r"[\w.\[\]]+: ")
"""How a message of a setting's own check begins: with the setting's name."""


def explain(message: str, raw: Any, of: type) -> str:
    """Turn msgspec's message ("Expected `float`, got `str` - at `$.alerts.x`") into one for a user of YAML.

    `raw` is what did not convert to `of`.
    """
    what, _, where = message.partition(" - at `$")
    steps = where.rstrip("`").replace("[", ".[").strip(".").split(".")
    value, kind, path = raw, _shape(of), ""
    for step in filter(None, steps):
        if isinstance(kind, inspect.StructType):
            value = value[step]
            kind = next(field.type for field in kind.fields if field.name == step)
        elif isinstance(kind, inspect.ListType):
            value, kind = list(value)[int(step.strip("[]"))], kind.item_type
        path += step if step.startswith("[") or not path else f".{step}"
    if _OWN.match(what):
        return f"{path}.{what}".removeprefix(".")
    if what.startswith("Object "):
        setting = f"{path + '.' if path else ''}{what.split('`')[1]}"
        return f"{setting}: no such setting" if "unknown field" in what else f"{setting}: is missing"
    got = value if isinstance(value, (str, int, float)) else type(value).__name__
    return f"{path + ': ' if path else ''}expected {_expected(kind)}, got {json.dumps(got)}"


def _expected(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.UnionType):
        kind = next(one for one in kind.types if not isinstance(one, inspect.NoneType))
    if isinstance(kind, inspect.LiteralType):
        return f"one of {', '.join(map(str, kind.values))}"
    words = {
        inspect.BoolType: "true or false",
        inspect.FloatType: "a number",
        inspect.IntType: "a whole number",
        inspect.StrType: "text",
        inspect.StructType: "a mapping",
        inspect.ListType: "a list",
        inspect.DictType: "a mapping",
    }
    bounds = (
        ("gt", ">"),
        ("ge", ">="),
        ("lt", "<"),
        ("le", "<="),
        ("min_length", "of at least"),
        ("max_length", "of at most"),
    )
    limits = [
        f" {sign} {limit:g}" if isinstance(limit, float) else f" {sign} {limit}"
        for name, sign in bounds
        if (limit := getattr(kind, name, None)) is not None
    ]
    if pattern := getattr(kind, "pattern", None):
        limits.append(f": {PATTERNS[pattern]}" if pattern in PATTERNS else f" like {pattern}")
    return words.get(type(kind), type(kind).__name__) + ",".join(limits)
