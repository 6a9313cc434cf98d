"""How a device joins a fleet, and when the centre says that a device, a release or a site is not well."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from omniwatch.receivers import Url
from omniwatch.thresholds import Count, Hold, Positive, Seconds, Share

Label = Annotated[str, Meta(min_length=1, max_length=128, pattern=r'^[^"\\\n]*\Z')]
WriteUrl = Annotated[
    str,
    Meta(
        pattern=r"^(https?://[A-Za-z0-9._~:\[\]-]+([/?]([A-Za-z0-9._~:/?@!$&()*+;=-]|%[0-9A-Fa-f]{2})*)?)?\Z"
    ),
]
"""An address that goes into a command line: without name and password, which everybody on the device could read there, and
without what vmagent (a comma, a quote) or systemd (a space) would take for the beginning of another word."""


def slack_s(interval_s: int) -> int:
    """By how much a device's alerts may be older than its newest `uplink:time_seconds`, and fire still: both come with the same
    time, but some agents send them in two requests.
    """
    return 2 * interval_s


class Fleet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The uplink of a device, and the rules of the centre (alerts/fleet.rules.yaml)."""

    remote_write_url: WriteUrl = ""
    """Where the centre takes Prometheus' remote write; empty, this device has no uplink."""
    query_url: Url = "http://127.0.0.1:8428"
    """The centre's Prometheus API, for those who look at the fleet from here."""
    site: Label = "default"
    model: Label = "qwen3-omni"
    release: Label = "1"
    """What the centre knows a device by, besides `site.device`. `release` names what is compared with what came before:
    a model's build, a firmware."""
    agent: Literal["vmagent", "prometheus"] = "vmagent"
    """Prometheus' agent forgets what it has not sent when it starts anew; vmagent does not."""
    agent_address: Annotated[str, Meta(min_length=1)] = "127.0.0.1:9843"
    """Where the agent has its own /metrics, on this device."""
    prometheus: Annotated[str, Meta(min_length=1)] = "127.0.0.1:9090"
    """This device's Prometheus, as its agent reaches it."""
    interval_s: Annotated[int, Meta(ge=1, le=60)] = 15
    """One sample of each series goes up in so long."""
    flush_s: Annotated[int, Meta(ge=1, le=60)] = 30
    """Samples are sent together, so often: the less often, the fewer bytes."""
    queue_max_bytes: Annotated[int, Meta(ge=500_000_000)] = 2**30
    """What the agent may keep on the disk while the centre cannot be reached; then the oldest goes first."""
    token_file: str = ""
    """Holds the bearer token for the centre, alone, on one line."""
    ca_file: str = ""
    """The certificates the centre's is held against; empty, the system's."""
    inventory_file: str = "/etc/omniwatch/fleet.yaml"
    """The devices there should be."""
    evaluation_s: Annotated[int, Meta(ge=1, le=120)] = 30
    """How often the centre evaluates its rules."""
    rule_delay_s: Hold = 30
    """The centre's rules look at the time so long ago, when what was measured then has arrived."""
    out_of_order_s: Seconds = 86_400
    """How late a sample may come and still be taken by a centre that asks (Prometheus, Mimir)."""
    silent_after_s: Seconds = 300
    silent_within_s: Seconds = 604_800
    """A device that was heard within the second and not within the first is silent; later it is forgotten."""
    clock_skew_s: Positive = 30
    clock_skew_for_s: Hold = 600
    """A device's clock is so far from the centre's, for so long."""
    backlog_bytes: Count = 1_000_000
    backlog_behind_s: Positive = 600
    backlog_for_s: Hold = 900
    """So much, or what is so old, waits on the device although it is heard."""
    breach_share: Share = 0.1
    breach_min: Count = 3
    breach_for_s: Hold = 120
    """More than this share of the devices that speak, and at least so many, are over a page's threshold."""
    release_ratio: Annotated[float, Meta(gt=1)] = 2
    release_share: Share = 0.02
    release_devices_min: Count = 5
    release_events_min: Count = 50
    release_window_s: Seconds = 3600
    release_for_s: Hold = 600
    """A release is worse when its share of bad turns, answers or resumes is so many times the baseline's and larger by so
    much, of at least so many devices and events on both sides."""
    baseline: str = ""
    baseline_ago_s: Seconds = 10_800
    """The release others are compared with; empty, the one that most devices had so long ago. To be named while a new
    one is rolled out over a longer time."""

    @property
    def slack_s(self) -> int:
        """See `slack_s`."""
        return slack_s(self.interval_s)

    def __post_init__(self) -> None:
        """Refuse times by which the centre's rules could tell nothing."""
        least = {
            "silent_after_s": (4 * self.evaluation_s, "four evaluations"),
            "silent_within_s": (max(3600, 2 * self.silent_after_s), "an hour and twice silent_after_s"),
            "release_window_s": (
                4 * max(self.interval_s, self.evaluation_s),
                "four samples of a device and four evaluations",
            ),
            "baseline_ago_s": (
                self.release_window_s + self.release_for_s,
                "release_window_s and release_for_s: a release would be its own baseline before it is judged",
            ),
        }
        for name, (shortest_s, why) in least.items():
            if getattr(self, name) < shortest_s:
                raise ValueError(
                    f"{name}: expected a whole number >= {shortest_s}, {why}, got {getattr(self, name)}"
                )
