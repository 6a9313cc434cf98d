"""One listener: its turns, its player, its two curves."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isinf
from typing import NamedTuple

from omniwatch.core.answers import Answers, Turn
from omniwatch.core.drift import Player
from omniwatch.core.integrity import FrameWatch
from omniwatch.core.picture_clock import PictureClock
from omniwatch.core.trend import Trend
from omniwatch.events import Audio

TURNS_KEPT = 8
"""Turns of a stream that are known to have begun; a listener who speaks up has seldom more than two under way."""
PICTURE_S = 10.0
"""A listener whose client sent no frame for so long sees no picture that the voice could be out of step with."""
UNSURE_S = 0.15
"""What arrived in the last round trip, and in this time before, may not have been acknowledged or asked for yet."""
LOSS_BASED = frozenset(("bic", "cubic", "highspeed", "htcp", "hybla", "illinois", "reno", "scalable", "yeah"))
"""Congestion controls of Linux that send less after each lost packet, which on a radio path says nothing of its room."""
LEAST_RESENT = 5
"""Segments sent again in a turn, at least, where a path counts as a lossy one: and one for each second of speech."""
EARS = ("client", "kernel", "sent")
"""How the listener's curves are known, the best first: by its client, by the server's kernel, by what was sent."""


class LastBad(NamedTuple):
    """The newest turn of a stream that was bad, with its worst verdict."""

    number: int
    t: float
    """When it began."""
    symptom: str
    cause: str
    excess_ms: float


class Pending(NamedTuple):
    """An answer whose first speech was sent and has not arrived, as far as is known."""

    turn: Turn
    asked_t: float
    sent_t: float
    interrupts: bool = False
    """Whether the user had spoken up before asking."""


@dataclass(slots=True)
class Stream:
    """One listener. Of two turns at once, `asked` waits for its first speech while `turn` is still being played."""

    id: str
    slot: int
    opened_t: float
    last_t: float
    peer: str | None = None
    kind: str | None = None
    source: str = ""
    """Where its last event was read."""
    ahead: float = inf
    """By how much its times are ahead of the server's monotonic clock; infinite for a writer that gives none."""
    closing: bool = False

    clock_set: bool = False
    """The wall clock was set since the question, and nobody knows where: the answer's delay cannot be told."""
    asked: bool = False
    asked_turn: Turn = None
    asked_t: float = 0.0
    turn: Turn = None
    begun: list[Turn] = field(default_factory=list)
    """The newest turns that began, `turn` first: more of an older one that goes on being sent begins nothing."""
    speaking: bool = False
    """Audio of `turn` came, and its playback is not over."""
    turn_open: bool = False
    """`turn` has not ended at the server: a player with nothing to play is starving."""

    handed: list[Audio] = field(default_factory=list)
    """Speech of `turn` that was handed over, and that the turn's record has not taken yet."""
    picture: PictureClock = field(default_factory=PictureClock)
    player: Player = field(default_factory=Player)
    frames: FrameWatch = field(default_factory=FrameWatch)
    trend: Trend = field(default_factory=Trend)
    stated: bool = False
    drift_ms: float | None = None
    drift_t: float = 0.0
    """When it was sampled."""
    worst_ms: float = 0.0
    shifted_ms: float = 0.0
    """What realignments took away of the drift so far."""
    sampled_shift_ms: float = 0.0
    """The same when `drift_ms` was sampled."""

    answers: Answers = field(default_factory=Answers)
    path_ms: float | None = None
    """The connection's round trip, as the kernel last smoothed it."""
    least_path_ms: float | None = None
    """The least that it was: a queue is not in it."""
    congestion: str | None = None
    """The connection's congestion control, by the kernel's name."""
    resent: int = 0
    """Segments of `turn` sent again."""
    by_kernel: bool = False
    """Whether the newest question's writer asks the kernel what arrives."""
    pending: list[Pending] = field(default_factory=list)
    """Answers whose first speech is under way, the oldest first."""
    counts_underruns: bool = False
    """Whether the client says when it starves: the model's underruns are then not counted."""
    worst_heard_ms: float = 0.0
    """`worst_ms` when something last arrived."""

    is_interrupted: bool = False
    """The user spoke up during `turn`."""
    is_cut_off: bool = False
    """And the client plays no more of it."""
    interrupt_t: float = 0.0
    stale_t: float = 0.0
    """When speech of `turn` was last handed over, from `interrupt_t` on."""
    sent_then_ms: float = 0.0
    """How much of `turn` had been sent when the user spoke up."""
    unheard_s: float | None = None
    """How much of that had not been heard; None once it is counted. The client may still correct it."""
    early_t: float | None = None
    """When the user spoke up though the question that waits has no answer yet."""
    spoke_up: bool = False
    """The user spoke up, and has asked nothing since."""
    asks_anew: bool = False
    """The question that waits was asked after the user spoke up."""

    underrun_s: float = 0.0
    """Its share of the total: for how long its listener had nothing to hear in the middle of a turn."""
    resumed_t: float = 0.0
    """When its client last came back."""
    resumed: str | None = None
    """What the client was given then: one of RESUME_RESULTS."""
    bad: LastBad | None = None

    @property
    def ear(self) -> str:
        """How its curves are known now: one of EARS."""
        if self.player.reported:
            return "client"
        return "kernel" if self.player.kernel else "sent"

    @property
    def is_held_back(self) -> bool:
        """Whether its connection takes lost packets for a full path, and loses many."""
        enough = max(LEAST_RESENT, self.player.arrived_ms / 1000)
        return self.congestion in LOSS_BASED and self.resent >= enough

    def known_until(self, now: float) -> float:
        """Return the moment that the curves are of: before now where speech is under way, which may have arrived."""
        if not self.player.under_way:
            return now
        return now - (self.path_ms or 0.0) / 1000.0 - UNSURE_S

    def is_away(self, now: float, after_s: float) -> bool:
        """Whether nothing that was sent has arrived for `after_s`."""
        player = self.player
        return now - player.grew_t > after_s and player.under_way

    def drift_at(self, now: float, keep_s: float) -> float | None:
        """Return the drift in ms to show at `now`: a stated one for `keep_s` after its sample, else while the turn is heard."""
        return self._drift(now) if self._drift_shown(now, keep_s) else None

    def cumulative_at(self, now: float, keep_s: float) -> float | None:
        """Return the drift in ms to show at `now` had nothing ever been realigned."""
        drift_ms = self.drift_at(now, keep_s)
        if drift_ms is None:
            return None
        return drift_ms + (self.sampled_shift_ms if self.stated else self.shifted_ms)

    def _drift_shown(self, now: float, keep_s: float) -> bool:
        if self.stated:
            return now < self.drift_t + keep_s
        return self.speaking and not self.is_over(now)

    def is_over(self, now: float) -> bool:
        """Whether the turn ended and all of it has been heard."""
        return not self.turn_open and not self.player.under_way and now > self.player.end_t

    def _drift(self, now: float) -> float | None:
        known_t = self.known_until(now)
        return self.drift_ms if self.stated or not self.has_started(known_t) else self.modelled(known_t)

    def has_started(self, t: float) -> bool:
        """Whether playback had begun by t."""
        return 0 <= self.player.start_t <= t

    def realign(self, t: float, shift_ms: float) -> None:
        """Take away shift_ms of drift at t; of a modelled drift no more than there is.

        The model knows what arrived. A client also makes good what the model never had.
        """
        if not self.stated:
            known_ms = self.modelled(t) if self.speaking and self.has_started(t) else 0.0
            shift_ms = min(max(shift_ms, min(known_ms, 0.0)), max(known_ms, 0.0))
            self.player.realign(t, shift_ms)
        self.shifted_ms += shift_ms

    def set_back(self, by_s: float) -> None:
        """Move all that was to a clock that was set back by so much; the slope begins anew."""
        self.opened_t -= by_s
        self.last_t -= by_s
        self.asked_t -= by_s
        self.drift_t -= by_s
        self.answers.set_back(by_s)
        self.picture.set_back(by_s)
        self.player.set_back(by_s)
        self.interrupt_t, self.stale_t = self.interrupt_t - by_s, self.stale_t - by_s
        self.early_t = None if self.early_t is None else self.early_t - by_s
        self.resumed_t -= by_s
        self.bad = self.bad and self.bad._replace(t=self.bad.t - by_s)
        self.pending = [
            one._replace(asked_t=one.asked_t - by_s, sent_t=one.sent_t - by_s) for one in self.pending
        ]
        self.trend = Trend()

    def follow_clock(self, ahead: float) -> None:
        """Move all that was, where the wall clock was set since: its times are now so much ahead of the monotonic clock."""
        if not isinf(self.ahead):
            self.set_back(self.ahead - ahead)
        self.ahead = ahead

    def has_picture(self, t: float) -> bool:
        """Whether the client shows a picture that moves."""
        return self.picture.seen and t - self.picture.t <= PICTURE_S

    def modelled(self, t: float) -> float:
        """Return the player's drift in ms at t, when it had begun to play."""
        player = self.player
        if not self.turn_open and not player.under_way:
            t = min(t, player.end_t)
        picture = self.picture
        if not picture.seen or t - picture.t > PICTURE_S:
            return 0.0 - 1000.0 * player.recently_starved_s(t)
        return 0.0 - 1000.0 * player.starved_s(t) - picture.slope * (t - player.start_t)

    def silent_s(self, now: float) -> float:
        """Return for how long this listener has waited for speech that is due; 0 when none is."""
        if not (self.asked or (self.speaking and self.turn_open and not self.is_cut_off)):
            return 0.0
        heard_until = self.player.silent_from() if self.speaking else 0.0
        return max(0.0, now - max(heard_until, self.asked_t if self.asked else 0.0))
