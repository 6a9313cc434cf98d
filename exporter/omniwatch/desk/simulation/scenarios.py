"""The table of scenarios. To add one, add one entry: what goes wrong, when, and what the two curves should then show.

Times are seconds from the start of the run. Pairs are the bounds of a uniform draw.
"""

from __future__ import annotations

import msgspec

from omniwatch.system.errors import UserError

Bounds = tuple[float, float]


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """What link, server and voice are like; the defaults are a good day."""

    answer_ms: Bounds = (360.0, 560.0)
    """From the user's text to the first speech, at the server."""
    drift_ppm: float = 0.0
    """How much faster than the picture the voice runs; -500 puts it 300 ms behind in ten minutes."""
    jump_ms: float = 0.0
    """How far the voice jumps when this condition begins …"""
    outage_s: float = 0.0
    """… after so long without a link."""
    cuts_per_minute: float = 0.0
    """Handovers: short cuts of the link, one in five long enough to make the client come back with a resume."""
    cut_jump_ms: float = 0.0
    """Each cut moves the voice by up to so much, either way; past 40 ms the server forces it back."""
    loss_share: float = 0.0
    corrupt_share: float = 0.0
    mute: bool = False
    """The server makes no speech, though a turn is open."""
    speaks_up_s: Bounds | None = None
    """So long into each answer the user speaks up …"""
    goes_on_s: Bounds = (0.0, 0.0)
    """… and so long after that the server goes on."""


class SimulatedListener(msgspec.Struct, frozen=True, kw_only=True):
    """A client: when it comes and goes, and whether it reports the round trip it measured itself."""

    joins_s: float = 0.0
    leaves_s: float | None = None
    reports_rtt: bool = False


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A named course of events.

    `fault` holds from `fault_at_s` until `mended_at_s`, `always` holds otherwise, also after `duration_s`, which
    is how long the script is. `alert` is the rule that must fire because of it, None where none may.
    """

    name: str
    summary: str
    duration_s: float
    fault_at_s: float | None = None
    mended_at_s: float | None = None
    alert: str | None = None
    fault: Condition = Condition()
    always: Condition = Condition()
    speech_s: Bounds = (6.0, 25.0)
    pause_s: Bounds = (1.5, 5.0)
    listeners: tuple[SimulatedListener, ...] = (SimulatedListener(),)

    def condition(self, at_s: float) -> Condition:
        """What holds at a time."""
        return self.fault if self.is_faulty(at_s) else self.always

    def is_faulty(self, at_s: float) -> bool:
        """Whether a time is in the fault's window."""
        begun = self.fault_at_s is not None and at_s >= self.fault_at_s
        return begun and (self.mended_at_s is None or at_s < self.mended_at_s)

    def crept_ms(self, at_s: float) -> float:
        """How far the fault's slow drift has carried the voice by then, had nobody realigned it."""
        if self.fault_at_s is None:
            return 0.0
        until_s = at_s if self.mended_at_s is None else min(at_s, self.mended_at_s)
        return self.fault.drift_ppm * max(until_s - self.fault_at_s, 0.0) / 1000

    def moved(self, fault_at_s: float | None = None, mended_at_s: float | None = None) -> Scenario:
        """The same with its fault at other times, and as much script after it. Raises UserError."""
        if self.fault_at_s is None or self.mended_at_s is None:
            raise UserError(f"{self.name} has no fault to move")
        begins = self.fault_at_s if fault_at_s is None else fault_at_s
        ends = begins + self.mended_at_s - self.fault_at_s if mended_at_s is None else mended_at_s
        if not self.fault.outage_s <= begins < ends:
            raise UserError(
                f"{self.name}: the fault must begin at {self.fault.outage_s:g} s or later and be mended after it"
            )
        after = self.duration_s - self.mended_at_s
        return msgspec.structs.replace(self, fault_at_s=begins, mended_at_s=ends, duration_s=ends + after)


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            name="steady",
            summary="A good day on 4G. Drift stays within 25 ms of 0, answers take about half a second, "
            "nothing fires.",
            duration_s=120.0,
        ),
        Scenario(
            name="progressive-drift",
            summary="The voice runs 500 ppm slow. Drift falls in a straight line to -300 ms after ten minutes; it "
            "passes -60 ms after two, and CodecDrift fires.",
            duration_s=600.0,
            fault_at_s=0.0,
            mended_at_s=600.0,
            alert="CodecDrift",
            fault=Condition(drift_ppm=-500.0),
        ),
        Scenario(
            name="reconnect-jump",
            summary="The link is away for 3 s; the resume is a hit, but from then on the voice is 180 ms behind. "
            "Drift is a step down, CodecDrift fires; a realignment ends both.",
            duration_s=75.0,
            fault_at_s=10.0,
            mended_at_s=45.0,
            alert="CodecDrift",
            fault=Condition(jump_ms=-180.0, outage_s=3.0),
            speech_s=(50.0, 60.0),
        ),
        Scenario(
            name="handover-120",
            summary="120 km/h, three cell handovers a minute: cuts, lost frames, retransmissions, resumes. Drift "
            "moves in small steps and is forced back past 40 ms; it stays under 60 ms, so nothing fires.",
            duration_s=300.0,
            always=Condition(cuts_per_minute=3.0, cut_jump_ms=18.0, loss_share=0.01),
            speech_s=(15.0, 60.0),
        ),
        Scenario(
            name="late-answers",
            summary="Turn after turn the first speech comes 1.1 to 1.6 s after the text. The round trip is a "
            "plateau far above 800 ms, TokenRTT fires; then answers are quick again.",
            duration_s=110.0,
            fault_at_s=10.0,
            mended_at_s=70.0,
            alert="TokenRTT",
            fault=Condition(answer_ms=(1100.0, 1600.0)),
            speech_s=(4.0, 8.0),
            pause_s=(1.0, 3.0),
        ),
        Scenario(
            name="overload",
            summary="The server gets too little CPU for two minutes: the voice runs 1500 ppm slow and answers take a "
            "second and more. Drift falls to -180 ms, the round trip stays over 800 ms; TokenRTT fires, then CodecDrift.",
            duration_s=200.0,
            fault_at_s=20.0,
            mended_at_s=140.0,
            alert="CodecDrift",
            fault=Condition(drift_ppm=-1500.0, answer_ms=(950.0, 1500.0)),
            speech_s=(6.0, 12.0),
            pause_s=(1.0, 3.0),
        ),
        Scenario(
            name="stall",
            summary="Speech stops in the middle of a turn, the picture goes on. The stream is silent for "
            "25 s: drift ends after 9 s, the round trip keeps its last value. Then the server gives the turn up.",
            duration_s=70.0,
            fault_at_s=15.0,
            mended_at_s=40.0,
            fault=Condition(mute=True),
            speech_s=(30.0, 40.0),
        ),
        Scenario(
            name="corrupt-frames",
            summary="One speech frame in twenty is damaged: a checksum that does not hold, or a code beyond the "
            "codebook. Both curves stay flat, the corrupt counter climbs.",
            duration_s=60.0,
            fault_at_s=10.0,
            mended_at_s=40.0,
            fault=Condition(corrupt_share=0.05),
        ),
        Scenario(
            name="barge-in",
            summary="For a minute the user speaks up 2 to 4 s into each answer. The server goes on for 0.2 to 0.9 s, and "
            "begins the next answer half a second after the question. Both curves stay flat, nothing fires.",
            duration_s=100.0,
            fault_at_s=10.0,
            mended_at_s=70.0,
            fault=Condition(speaks_up_s=(2.0, 4.0), goes_on_s=(0.2, 0.9)),
            pause_s=(0.4, 1.2),
        ),
        Scenario(
            name="two-streams",
            summary="A second client joins after 15 s, reports its own round trips and leaves after 95 s. Both "
            "curves are flat, twice; nothing fires.",
            duration_s=120.0,
            listeners=(SimulatedListener(), SimulatedListener(joins_s=15.0, leaves_s=95.0, reports_rtt=True)),
        ),
    )
}
"""By name, in the order `--list` shows them."""
