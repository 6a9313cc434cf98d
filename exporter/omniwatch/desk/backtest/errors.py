"""The error of a backtest whose input the user can mend."""

from __future__ import annotations

from omniwatch.system.errors import UserError


class BacktestError(UserError):
    """A recording, rules or routes that no backtest can be made of, or a program that it needs."""
