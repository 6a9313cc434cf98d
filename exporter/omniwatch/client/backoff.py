"""Decide when the next attempt to reconnect is due. Pure."""

from __future__ import annotations

from collections.abc import Callable

FIRST_PAUSE_S = 0.3
"""Pause between two attempts before the round trip is known, seconds."""
PAUSES_S = (0.1, 1.0)
"""Shortest and longest pause derived from the round trip, seconds."""
QUICK_TRIES = 5
"""Attempts before the pause doubles: a single lost packet is the most likely cause of the first failures."""
SHORTEST_RTT_S = 0.001


class Backoff:
    """Retry backoff: 1.5 × RTT, doubled with each attempt after the fifth, with a jitter of ±25 %."""

    def __init__(self, longest_s: float, jitter: Callable[[], float]) -> None:
        self.next_try = 0.0
        self.rtt_s = 0.0
        """Shortest round trip seen, seconds; 0 before any."""
        self._longest_s = longest_s
        self._jitter = jitter
        self._tries = 0

    def saw_rtt(self, took_s: float) -> None:
        """Note the duration of a handshake or of a request and its answer: an upper bound of the round trip."""
        took_s = max(SHORTEST_RTT_S, took_s)
        self.rtt_s = min(took_s, self.rtt_s or took_s)

    def restart(self) -> None:
        """Reset the number of attempts."""
        self._tries = 0

    def attempt(self, now: float) -> bool:
        """Count an attempt and schedule the next; return whether this is the first."""
        self._tries += 1
        self.wait(now)
        return self._tries == 1

    def wait(self, now: float) -> None:
        """Schedule the next attempt after the current pause."""
        pause_s = min(PAUSES_S[1], max(PAUSES_S[0], 1.5 * self.rtt_s)) if self.rtt_s else FIRST_PAUSE_S
        pause_s = min(self._longest_s, pause_s * 2.0 ** max(0, self._tries - QUICK_TRIES))
        self.next_try = now + pause_s * (0.75 + 0.5 * self._jitter())
