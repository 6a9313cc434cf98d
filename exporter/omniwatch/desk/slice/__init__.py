"""Cut a mixture of experts down: choose the experts to keep, rewrite the checkpoint without the others, and measure the cost."""

from __future__ import annotations

from omniwatch.system.errors import UserError

PARTS = ("thinker", "talker")
"""The parts of a Qwen3-Omni that have experts."""


class SliceError(UserError):
    """Input that nothing can be sliced by."""
