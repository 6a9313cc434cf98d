"""The edges of the histograms. Settings check thresholds against them; the stream table counts by them."""

from __future__ import annotations

DRIFT_EDGES = (0.01, 0.02, 0.04, 0.045, 0.06, 0.09, 0.125, 0.185, 0.3, 0.5, 1.0, 2.5)
"""Seconds. 45, 125 and 185 ms are the limits of ITU-R BT.1359 for a voice that leads and lags."""
RTT_EDGES = (0.1, 0.2, 0.3, 0.5, 0.65, 0.75, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0)
"""Seconds."""
EXTRA_DELAY_EDGES = (0.0, 0.02, 0.04, 0.063, 0.08, 0.12, 0.2, 0.4, 0.75, 1.5, 3.0)
"""Seconds."""
INTERRUPTION_EDGES = (0.05, *RTT_EDGES)
"""Seconds."""
