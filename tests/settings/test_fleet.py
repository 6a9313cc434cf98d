"""Settings of a fleet: the shortest times its rules hold with, and what is refused in one line."""

from __future__ import annotations

import json

import msgspec
import pytest

from helpers.bundles import promtool, rendered
from helpers.needs import NEGATIVE_OFFSET
from omniwatch.settings import Settings, SettingsError, parse
from omniwatch.settings.fleet import Fleet

SHORTEST = Fleet(
    evaluation_s=120,
    interval_s=60,
    silent_after_s=1800,
    silent_within_s=3600,
    release_window_s=480,
    release_for_s=120,
    baseline_ago_s=600,
)


@pytest.mark.programs
@pytest.mark.needs(NEGATIVE_OFFSET)
def test_the_rules_hold_with_the_shortest_times_there_can_be(tmp_path):
    rendered(tmp_path, msgspec.structs.replace(Settings(), fleet=SHORTEST))
    done = promtool("test", "rules", "alerts/fleet.test.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("device", ['bus "017"', "bus\\017", "bus\n"])
def test_a_name_that_no_label_can_be_compared_with_is_refused(device):
    with pytest.raises(SettingsError, match=r"site\.device: expected text"):
        parse(json.dumps({"site": {"device": device}}))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("remote_write_url: centre.example", "fleet.remote_write_url: expected text"),
        *(
            (f"remote_write_url: 'https://{rest}'", "fleet.remote_write_url: expected text")
            for rest in (
                "me:s3cret@c/w",
                "c/w x",
                "c/w?a=1,b",
                'c/w"',
                "c/w''",
                "c/w?x=%4",
                "c/w?x=%{HOME}",
                "c/w\\",
                "c/写",
                "?x",
                "",
            )
        ),
        ('remote_write_url: "https://c/w\\n"', "fleet.remote_write_url: expected text"),
        ('site: "a\\n"', "fleet.site: expected text"),
        ("evaluation_s: 300", "fleet.evaluation_s: expected a whole number >= 1, <= 120, got 300"),
        (
            "silent_after_s: 119",
            "fleet.silent_after_s: expected a whole number >= 120, four evaluations, got 119",
        ),
        (
            "silent_within_s: 200",
            "fleet.silent_within_s: expected a whole number >= 3600, an hour and twice silent_after_s",
        ),
        (
            "silent_after_s: 1801, silent_within_s: 3601",
            "fleet.silent_within_s: expected a whole number >= 3602",
        ),
        ("release_window_s: 119", "fleet.release_window_s: expected a whole number >= 120, four samples"),
        (
            "baseline_ago_s: 4199",
            "fleet.baseline_ago_s: expected a whole number >= 4200, release_window_s and release_for_s",
        ),
        ("queue_max_bytes: 1000", "fleet.queue_max_bytes: expected a whole number >= 500000000"),
        ("agent: telegraf", "fleet.agent"),
        ("interval_s: 61", "fleet.interval_s: expected a whole number >= 1, <= 60, got 61"),
        ("site: ''", "fleet.site: expected text"),
        ("release: 2026-02-30", "omniwatch.yaml: line 1: a value cannot be read"),
    ],
)
def test_settings_that_cannot_be_are_one_line(setting, message):
    with pytest.raises(SettingsError) as caught:
        parse(f"fleet: {{{setting}}}")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
