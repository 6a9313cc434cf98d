"""Count over all streams. A field is named after the metric family it feeds, without prefix and `_total`."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from omniwatch.core.verdict import CAUSES
from omniwatch.settings.histograms import DRIFT_EDGES, EXTRA_DELAY_EDGES, INTERRUPTION_EDGES, RTT_EDGES

OUTCOMES = (
    "completed",
    "aborted",
    "interrupted",
    "failed",
    "no_audio",
    "abandoned",
    "refused",
    "incomplete",
    "other",
)
"""Refused: the request was wrong, so that the turn says nothing of the server."""
RESUME_RESULTS = ("hit", "replay", "gone", "ahead", "unknown", "refused", "other")
NOT_OURS = ("junk", "unauthorized")
"""Results of requests that no client of the server's sent, or not with its key; they are no failed returns."""
RTX_RESULTS = ("hit", "partial", "miss", "refused", "other")
VANTAGES = ("client", "server")
SIDES = ("long", "short")
"""Speech that is longer, or shorter, than its text can be."""
FAULTS = (
    "response_already_active",
    "conversation_already_has_active_response",
    "response_cancel_not_active",
    "playback_ack_too_late",
    "output_backpressure",
    "input_backpressure",
    "engine_backpressure",
    "input_audio_buffer_commit_empty",
    "unsupported_audio_format",
    "unsupported_turn_detection",
    "invalid_request_error",
    "server_vad_unavailable",
    "session_limit_reached",
    "session_expired",
    "session_resume_expired",
    "rate_limit_exceeded",
    "processing_error",
    "internal_error",
    "server_error",
    "other",
)
"""Codes of what servers tell clients went wrong: vLLM-Omni's, OpenAI's, and others' of that protocol."""
CALLED = "called"
"""Reason of a turn that ended in a call of a tool: another one answers, so that it is counted under no outcome."""


@dataclass(slots=True)
class Histogram:
    """Counts per bucket (not cumulative; the last is +Inf) and the sum of what was observed."""

    counts: list[int]
    sum: float = 0.0

    def observe(self, value: float, edges: tuple[float, ...]) -> None:
        """Count a value in the bucket of the first edge that is not below it."""
        self.counts[bisect_left(edges, value)] += 1
        self.sum += value


def _histogram(edges: tuple[float, ...]) -> Histogram:
    return Histogram([0] * (len(edges) + 1))


def bounded(value: str, known: tuple[str, ...]) -> str:
    """Keep a label's values to those known: a writer must not be able to make series."""
    return value if value in known else "other"


OUTCOME_OF_REASON = {
    "stop": "completed",
    "length": "completed",
    "done": "completed",
    "abort": "aborted",
    "cancelled": "aborted",
    "disconnect": "aborted",
    "error": "failed",
}
"""What servers call the end of a turn, where it is not an outcome's own name."""


def outcome_of(reason: str) -> str:
    """Return the outcome that a server's reason for the end of a turn stands for."""
    return OUTCOME_OF_REASON.get(reason, bounded(reason, OUTCOMES))


@dataclass(slots=True)
class Totals:
    """Counters and histograms; all only ever grow."""

    drift_edges: tuple[float, ...]
    codec_drift_abs: Histogram
    turn_drift_worst: Histogram
    audio_seconds: float = 0.0
    audio_underrun_seconds: float = 0.0
    audio_frames: int = 0
    audio_frames_lost: int = 0
    audio_frames_duplicate: int = 0
    audio_frames_late: int = 0
    audio_frames_corrupt: int = 0
    audio_loss_runs: int = 0
    codec_realign: int = 0
    resume_replayed_frames: int = 0
    streams_dropped: int = 0
    answers_unmeasured: int = 0
    resume_extra_delay: Histogram = field(default_factory=lambda: _histogram(EXTRA_DELAY_EDGES))
    token_rtt: dict[str, Histogram] = field(
        default_factory=lambda: {vantage: _histogram(RTT_EDGES) for vantage in VANTAGES}
    )
    interruption_stale: Histogram = field(default_factory=lambda: _histogram(INTERRUPTION_EDGES))
    interruption_unheard: Histogram = field(default_factory=lambda: _histogram(INTERRUPTION_EDGES))
    interruption_answer: Histogram = field(default_factory=lambda: _histogram(INTERRUPTION_EDGES))
    turns: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    turns_judged: int = 0
    turns_bad: dict[str, dict[str, int]] = field(default_factory=dict)
    """By symptom and cause."""
    turns_odd_length: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SIDES, 0))
    resume_attempts: int = 0
    resume_strangers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NOT_OURS, 0))
    resume_requests: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RESUME_RESULTS, 0))
    session_faults: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAULTS, 0))
    rtx_requests: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RTX_RESULTS, 0))
    expert_masks: list[int] = field(default_factory=lambda: [0] * 256)
    """Frames per value of expert_mask; what each expert had is worked out when asked."""

    def __post_init__(self) -> None:
        """Count the outcomes, too, that the program which wrote a checkpoint did not know."""
        self.turns = dict.fromkeys(OUTCOMES, 0) | self.turns
        self.turns_bad = {
            symptom: dict.fromkeys(causes, 0) | self.turns_bad.get(symptom, {})
            for symptom, causes in CAUSES.items()
        }
        self.session_faults = dict.fromkeys(FAULTS, 0) | self.session_faults

    @classmethod
    def empty(cls, drift_page_ms: float) -> Totals:
        """Start at 0, with the page threshold among the drift edges, so that a rule can count what passed it."""
        edges = tuple(sorted({*DRIFT_EDGES, drift_page_ms / 1000}))
        return cls(edges, _histogram(edges), _histogram(edges))

    def count_resume(
        self, result: str, replayed: int, extra_ms: float | None, *, again: bool = False
    ) -> None:
        """Count a return of a client; `extra_ms` is how much later its next frame plays, where that is known.

        Another attempt of the same return (`again`) is an attempt only.
        """
        if result in NOT_OURS:
            self.resume_strangers[result] += 1
            return
        self.resume_attempts += 1
        if again:
            return
        self.resume_requests[bounded(result, RESUME_RESULTS)] += 1
        self.resume_replayed_frames += replayed
        if extra_ms is not None:
            self.resume_extra_delay.observe(extra_ms / 1000, EXTRA_DELAY_EDGES)

    def count_rtx(self, result: str) -> None:
        """Count a request for frames that were lost."""
        if result in NOT_OURS:
            self.resume_strangers[result] += 1
            return
        self.rtx_requests[bounded(result, RTX_RESULTS)] += 1

    def expert_frames(self) -> list[int]:
        """Return frames per expert, by the bits of expert_mask."""
        return [sum(n for mask, n in enumerate(self.expert_masks) if mask >> bit & 1) for bit in range(8)]
