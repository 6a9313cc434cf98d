"""What a backtest cannot do."""

from __future__ import annotations


class BacktestError(ValueError):
    """It cannot be done; the message is for the user."""
