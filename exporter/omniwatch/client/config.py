"""Hold the client's windows and timeouts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """Windows, timeouts and habits of one client, in frames, seconds or milliseconds as the names say."""

    silence_s: float = 1.0
    """Seconds without data before the connection counts as lost; at least four heartbeats of the server."""
    hurry_s: float = 0.35
    """As `silence_s`, while less audio is buffered than reconnecting takes; at least 1.4 heartbeats."""
    client_win: int = 150
    """Frames kept: those that wait for a missing one, and as many of the newest that were delivered."""
    cache_win: int = 75
    """Most frames in one retransmission request, where the server does not state how many it holds."""
    rtx_thr: int = 3
    """Consecutive missing frames from which on retransmission is requested."""
    rtx_again_s: float = 0.3
    """Seconds before an unanswered retransmission request is repeated."""
    rtx_patience_s: float = 1.0
    """Seconds before requested frames count as lost."""
    reorder_s: float = 0.1
    """Seconds to wait for fewer than `rtx_thr` missing frames; longer while buffered audio lasts."""
    drift_ms: float = 40.0
    """Drift between voice and picture above which the voice is realigned, milliseconds."""
    playout_ms: float = 80.0
    """Audio buffered before the first frame plays, milliseconds."""
    backoff_s: float = 1.0
    """Longest pause between two attempts to reconnect, seconds."""
    answer_s: float = 10.0
    """Seconds for the model server to begin its answer."""
    give_up_s: float | None = None
    """Seconds without a connection before the turn is given up; None: once the server's grace is over."""
    report: bool = True
    """Whether the server is told, once a second, what has been played and how long there was nothing to play."""
    warm_s: float = 120.0
    """Seconds after a turn for which a connection is kept for the next question; 0: none is."""
    warm_ping_s: float = 15.0
    """Seconds between two small requests on that connection; at most a third of what the server's `Keep-Alive` header states."""
    opus: bool = True
    """Whether speech is asked for in Opus, where the extra `opus` is installed: a tenth of the bytes."""
    opus_bitrate: int = 24_000
    """Bits a second to ask for: 24000 or 32000."""
