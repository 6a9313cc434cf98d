"""The error of a backtest whose input the user can mend."""

from __future__ import annotations

from omniwatch.system.errors import UserError


class BacktestError(UserError):
    """The recording, the rules or the routes cannot be used, or a program is missing."""
