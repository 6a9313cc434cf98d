"""The error of a backtest whose input the user can mend."""

from __future__ import annotations


class BacktestError(ValueError):
    """It cannot be done; the message is for the user."""
