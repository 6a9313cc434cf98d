"""When the next attempt to come back is due. Pure."""

from __future__ import annotations

from collections.abc import Callable

FIRST_PAUSE_S = 0.3
"""Between two attempts, before the round trip is known."""
PAUSES_S = (0.1, 1.0)
"""The shortest and the longest pause that a round trip makes."""
QUICK_TRIES = 5
"""So many attempts follow each other quickly: what is lost on the way is one packet, most likely."""
SHORTEST_RTT_S = 0.001


class Pace:
    """An attempt stays the newest for a round trip and a half; after some, for twice as long each time, each ± 25 %."""

    def __init__(self, longest_s: float, jitter: Callable[[], float]) -> None:
        self.next_try = 0.0
        self.rtt_s = 0.0
        """The shortest round trip seen; 0 before any."""
        self._longest_s = longest_s
        self._jitter = jitter
        self._tries = 0

    def saw_rtt(self, took_s: float) -> None:
        """A handshake, or a question and its answer, took so long: the round trip is no longer."""
        took_s = max(SHORTEST_RTT_S, took_s)
        self.rtt_s = min(took_s, self.rtt_s or took_s)

    def restart(self) -> None:
        """Begin to count anew."""
        self._tries = 0

    def attempt(self, now: float) -> bool:
        """An attempt is made; return whether it is the first."""
        self._tries += 1
        self.wait(now)
        return self._tries == 1

    def wait(self, now: float) -> None:
        """Let the next attempt be due after the pause that is due now."""
        pause_s = min(PAUSES_S[1], max(PAUSES_S[0], 1.5 * self.rtt_s)) if self.rtt_s else FIRST_PAUSE_S
        pause_s = min(self._longest_s, pause_s * 2.0 ** max(0, self._tries - QUICK_TRIES))
        self.next_try = now + pause_s * (0.75 + 0.5 * self._jitter())
