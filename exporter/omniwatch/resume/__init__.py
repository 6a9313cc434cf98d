"""Resumption: a streamed chat that goes on where it stopped when its client comes back."""

from omniwatch.resume.app import Resume

__all__ = ["Resume"]
