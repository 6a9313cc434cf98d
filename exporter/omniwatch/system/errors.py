"""The base of the errors that a user reads."""

from __future__ import annotations


class UserError(ValueError):
    """What the user can mend. The message is what the user reads: one line that names the file, the setting or the address.

    Only the command line turns it into text and an exit code (`omniwatch.cli`).
    """
