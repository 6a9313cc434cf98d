"""Follow a recording with the sidecar's own stream table, and tell each step of a turn to what keeps the turns' records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from omniwatch import events
from omniwatch.core.stream import Stream
from omniwatch.core.streams import GUESSES, StreamTable
from omniwatch.desk.explain.turns import Judged, Turns
from omniwatch.desk.explain.verdict import Terms
from omniwatch.settings import Settings

STEP_S = 1.0
"""Seconds of the recording after which time passes for the table."""
AFTER_S = 3600.0
"""Seconds that pass after the last event: all that was sent has been heard by then."""


def terms(settings: Settings, client_buffer_ms: float | None = None) -> Terms:
    """Return what is bad by the settings. `client_buffer_ms` is the speech that a client's buffer holds, where that is known."""
    return Terms(
        late_ms=settings.alerts.rtt_page_ms,
        skewed_ms=settings.alerts.drift_page_ms,
        buffer_s=settings.streams.playout_buffer_ms / 1000,
        client_buffer_ms=client_buffer_ms,
    )


class TurnTable(StreamTable):
    """The stream table, which also tells `turns` what happens to each turn. Call `finish` after the last event."""

    def __init__(
        self, settings: Settings, found: Callable[[Judged], None], client_buffer_ms: float | None = None
    ) -> None:
        """`found` takes each turn that was judged, good or bad."""
        super().__init__(settings)
        self.turns = Turns(terms(settings, client_buffer_ms), found)
        self.first_t: float | None = None
        """Time of the recording's first event; None before it."""
        self._now = self._advanced_t = 0.0

    def apply_all(self, batch: Iterable[events.Event], source: str = "") -> None:
        """Take events in their order; time passes by them."""
        for event in batch:
            if self.first_t is None:
                self.first_t = event.t
            if abs(event.t - self._advanced_t) >= STEP_S:
                self.advance(event.t)
                self._advanced_t = event.t
            super().apply_all((event,), source)
            self._now = event.t

    def advance(self, now: float, behind: Mapping[str, float] = MappingProxyType({})) -> None:
        """Let time pass; turns whose playback was over long enough ago are judged."""
        super().advance(now, behind)
        self.turns.advance(now)

    def finish(self) -> None:
        """Judge the turns that had ended when the recording did."""
        self.advance(self._now + AFTER_S)

    def _remove(self, stream: Stream) -> None:
        super()._remove(stream)
        self.turns.gone(stream)

    def _playback_over(self, stream: Stream) -> None:
        away = stream.is_away(stream.last_t, self._away_s)
        super()._playback_over(stream)
        self.turns.heard(stream, away=away)

    def _turn_start(self, stream: Stream, event: events.TurnStart) -> None:
        super()._turn_start(stream, event)
        self.turns.asked(stream, event)

    def _begin_speech(self, stream: Stream, event: events.Audio) -> None:
        if stream.turn_open:
            self.turns.ended(stream, stream.turn, event.t, "interrupted")
        super()._begin_speech(stream, event)

    def _audio(self, stream: Stream, event: events.Audio) -> None:
        before, sent_ms = stream.player, stream.player.sent_ms
        super()._audio(stream, event)
        if stream.player is before and stream.player.sent_ms == sent_ms:
            # Its frames were sent before, or it is the tail of a turn that was cut off.
            return
        self.turns.sent(stream, event)
        if event.pts_ms is not None and event.video_pts_ms is not None:
            self.turns.stated(stream, event.t, event.pts_ms - event.video_pts_ms)

    def _arrived(self, stream: Stream, event: events.Arrived) -> None:
        super()._arrived(stream, event)
        self.turns.arrived(stream, event)

    def _passed_over(self, stream: Stream, event: events.Event) -> None:
        super()._passed_over(stream, event)
        if isinstance(event, events.Text):
            self.turns.text(stream, event)

    def _underrun(self, stream: Stream, event: events.Underrun) -> None:
        if event.source not in GUESSES:
            self.turns.reported(stream, event.turn, event.ms)
        super()._underrun(stream, event)

    def _turn_end(self, stream: Stream, event: events.TurnEnd) -> None:
        self.turns.ended(stream, event.turn, event.t, event.reason, event.chars)
        super()._turn_end(stream, event)

    def _rtt(self, stream: Stream, event: events.Rtt) -> None:
        super()._rtt(stream, event)
        self.turns.timed(stream, event.turn, event.rtt_ms)

    def _resume(self, stream: Stream, event: events.Resume) -> None:
        super()._resume(stream, event)
        if event.result in ("hit", "replay"):
            self.turns.returned(stream, event.t)
