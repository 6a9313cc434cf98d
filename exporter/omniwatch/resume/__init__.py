"""Resumption: a streamed chat continues with the next frame when its client comes back."""

from omniwatch.system import needed, parts

needed.check("omniwatch.resume", "msgspec", "yaml")
if not parts.RESUME.is_here():
    raise ImportError(f"omniwatch.resume: {parts.RESUME.absence()}")

from omniwatch.resume.app import Resume  # noqa: E402 - the checks come first

__all__ = ["Resume"]
