"""What a test needs a tool to be able to do: a test marked `needs(FEATURE)` is skipped, with the feature's own words, where it cannot."""

from __future__ import annotations

import shutil

from omniwatch.bundle.features import (
    LINT,
    MAIL_PASSWORD_FILE,
    NEGATIVE_OFFSET,
    PAGERDUTY_KEY_FILE,
    Feature,
    Tools,
)

__all__ = ["KEEP_FIRING", "LINT", "MAIL_PASSWORD_FILE", "NEGATIVE_OFFSET", "PAGERDUTY_KEY_FILE", "TOOLS"]

KEEP_FIRING = Feature(
    "promtool",
    "keep_firing_for is of Prometheus 2.42, and this one is older",
    ("check", "rules"),
    file="groups: [{name: a, rules: [{alert: A, expr: up, keep_firing_for: 1s}]}]",
)
TOOLS = Tools(shutil.which)
