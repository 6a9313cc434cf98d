"""The settings of a fleet: how a device joins, and when the centre calls a device, release or site unwell."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from omniwatch.settings.kinds import (
    Address,
    AlertmanagerUrl,
    Count,
    Hold,
    Label,
    OptionalLabel,
    OptionalPath,
    Positive,
    Seconds,
    Share,
    Url,
    WriteUrl,
)
from omniwatch.system import ports


def slack_s(interval_s: int) -> int:
    """By how much a device's alerts may be older than its newest `uplink:time_seconds`, and fire still: both come with the same
    time, but some agents send them in two requests.
    """
    return 2 * interval_s


class Fleet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The uplink of a device, and the rules of the centre (alerts/fleet.rules.yaml)."""

    centre: bool = False
    """Whether this machine is the fleet's centre: `omniwatch install` then brings the centre's commands (`omniwatch fleet status`)."""
    remote_write_url: WriteUrl = ""
    """Where the centre takes Prometheus' remote write. Empty: this device has no uplink."""
    alertmanager_urls: list[AlertmanagerUrl] = []
    """The fleet's Alertmanagers, all of one cluster: this device's Prometheus sends its alerts there itself. Empty: this
    device has an Alertmanager of its own."""
    alertmanager_username: str = ""
    """User of basic auth at `alertmanager_urls`. Empty: `token_file` is used."""
    alertmanager_password_file: str = ""
    """File that holds that user's password, alone, on one line."""
    client_cert_file: str = ""
    """Certificate that this device shows `alertmanager_urls` (mTLS). Empty: none."""
    client_key_file: str = ""
    """Key of that certificate."""
    query_url: Url = "http://127.0.0.1:8428"
    """The centre's Prometheus API, for `omniwatch fleet status`."""
    site: Label = "default"
    """Site of this device, as the centre's label `site`."""
    model: Label = "qwen3-omni"
    """Hardware model of this device, as the centre's label `model`."""
    release: Label = "1"
    """What is compared with the release before: a model's build, a firmware."""
    agent: Literal["vmagent", "prometheus"] = "vmagent"
    """Agent that sends. Prometheus' agent forgets unsent samples when it restarts; vmagent does not."""
    agent_address: Address = f"127.0.0.1:{ports.UPLINK}"
    """HOST:PORT of the agent's own `/metrics`, on this device."""
    prometheus: Address = "127.0.0.1:9090"
    """HOST:PORT of this device's Prometheus, as its agent reaches it."""
    interval_s: Annotated[int, Meta(ge=1, le=60)] = 15
    """Pause between two samples of a series."""
    flush_s: Annotated[int, Meta(ge=1, le=60)] = 30
    """Pause between two sends: the longer, the fewer bytes."""
    queue_max_bytes: Annotated[int, Meta(ge=500_000_000, le=2**53)] = 2**30
    """Disk the agent may use while the centre cannot be reached. Then the oldest samples are dropped first."""
    token_file: OptionalPath = ""
    """File that holds the bearer token for the centre, alone, on one line: for `remote_write_url`, and for
    `alertmanager_urls` unless `alertmanager_username` is set. Empty: none."""
    ca_file: OptionalPath = ""
    """File of certificates that the centre's is checked against. Empty: the system's."""
    inventory_file: str = "/etc/omniwatch/fleet.yaml"
    """Fleet file: the devices there should be."""
    evaluation_s: Annotated[int, Meta(ge=1, le=120)] = 30
    """Pause between two evaluations of the centre's rules."""
    rule_delay_s: Hold = 30
    """How far back the centre's rules look, so that what was measured then has arrived."""
    out_of_order_s: Seconds = 86_400
    """How late a sample may come and still be taken, by a centre that asks (Prometheus, Mimir)."""
    silent_after_s: Seconds = 300
    """Time without samples after which `DeviceSilent` pages."""
    silent_within_s: Seconds = 604_800
    """Time without samples after which a silent device is forgotten."""
    site_silent_min: Annotated[int, Meta(ge=1, le=100)] = 3
    """Silent devices of a site that `SiteSilent` needs at least."""
    site_silent_share: Annotated[float, Meta(ge=0.01, le=0.9999)] = 0.5
    """Share of a site's devices that `SiteSilent` needs at least."""
    off_max_s: Seconds = 259_200
    """Time after which a device that said it goes off is the ticket `DeviceOff`."""
    held_after_s: Seconds = 100
    """Time without samples after which the centre holds a device's alerts as they are: neither ended nor sent again."""
    clock_skew_s: Positive = 30
    """Difference between a device's clock and the centre's past which `DeviceClockSkew` fires."""
    clock_skew_for_s: Hold = 600
    """Time that difference must last."""
    backlog_bytes: Count = 1_000_000
    """Bytes that wait on a device past which `UplinkBacklog` fires, although the device is heard."""
    backlog_behind_s: Positive = 600
    """Age of what waits past which `UplinkBacklog` fires, although the device is heard."""
    backlog_for_s: Hold = 900
    """Time the backlog must last."""
    release_ratio: Annotated[float, Meta(gt=1, le=1e6)] = 2
    """`ReleaseRegression`: by what factor a release's share of bad turns, answers or resumes exceeds the
    baseline's."""
    release_share: Share = 0.02
    """`ReleaseRegression`: by how much that share exceeds the baseline's."""
    release_devices_min: Annotated[int, Meta(ge=1, le=1000)] = 5
    """`ReleaseRegression`: devices needed on both sides."""
    release_events_min: Count = 50
    """`ReleaseRegression`: turns, answers or resumes needed on both sides."""
    release_window_s: Seconds = 3600
    """`ReleaseRegression`: time over which they are counted."""
    release_for_s: Hold = 600
    """`ReleaseRegression`: time the difference must last."""
    baseline: OptionalLabel = ""
    """Release the others are compared with. Empty: the one most devices had `baseline_ago_s` ago. Name it
    during a slow rollout."""
    baseline_ago_s: Seconds = 10_800
    """How long ago the baseline is looked up."""

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
        if bool(self.alertmanager_username) != bool(self.alertmanager_password_file):
            raise ValueError(
                "alertmanager_username: goes with alertmanager_password_file; set both or neither"
            )
        if bool(self.client_cert_file) != bool(self.client_key_file):
            raise ValueError("client_cert_file: goes with client_key_file; set both or neither")
