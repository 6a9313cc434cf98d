"""Resumption: a streamed chat continues with the next frame when its client comes back."""

from omniwatch.system import needed

needed.check("omniwatch.resume", "msgspec", "yaml")

from omniwatch.resume.app import Resume  # noqa: E402 - the check comes first

__all__ = ["Resume"]
