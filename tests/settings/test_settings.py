"""omniwatch.yaml: defaults without a file, and errors that say where, what and what instead."""

from __future__ import annotations

import pytest

from omniwatch import settings
from omniwatch.notify import robots

ROBOTS = ", ".join(sorted(robots.discover()))


def test_defaults_need_no_file():
    assert settings.load(None) == settings.parse("") == settings.Settings()
    assert settings.Settings().alerts.drift_page_ms == 60
    assert settings.Settings().frames.cache_win == 75


def test_a_file_changes_what_it_names_and_nothing_else(tmp_path):
    path = tmp_path / "omniwatch.yaml"
    path.write_text("alerts:\n  drift_page_ms: 62.5\n")
    loaded = settings.load(path)
    assert loaded.alerts.drift_page_ms == 62.5
    assert loaded.alerts.rtt_page_ms == 800


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "alerts:\n  drift_page_ms: sixty",
            'omniwatch.yaml: alerts.drift_page_ms: expected a number >= 0.001, <= 1e+09, got "sixty"',
        ),
        (
            "alerts: {drift_page_ms: -1}",
            "omniwatch.yaml: alerts.drift_page_ms: expected a number >= 0.001, <= 1e+09, got -1",
        ),
        (
            "alerts: {drift_page_ms: .nan}",
            "omniwatch.yaml: alerts.drift_page_ms: expected a number >= 0.001, <= 1e+09, got NaN",
        ),
        ("alerts: {drift_page: 1}", "omniwatch.yaml: alerts.drift_page: no such setting"),
        ("alert: {}", "omniwatch.yaml: alert: no such setting"),
        (
            "sidecar: {impaired_for_s: 300}",
            "omniwatch.yaml: sidecar.impaired_for_s: expected a whole number < 300, lost_window_s, got 300",
        ),
        ("alerts: 5", "omniwatch.yaml: alerts: expected a mapping, got 5"),
        (
            "notify: {robots: [{kind: slack, url_file: /x}]}",
            "omniwatch.yaml: notify.robots[0].kind: expected one of " + ROBOTS + ', got "slack"',
        ),
        (
            "notify: {robots: [{kind: wecom, url_file: /x, severities: [page, pages]}]}",
            'omniwatch.yaml: notify.robots[0].severities[1]: expected one of page, ticket, got "pages"',
        ),
        ("fleet: {agent: 1}", "omniwatch.yaml: fleet.agent: expected one of prometheus, vmagent, got 1"),
        (
            "resume: {event_streams: maybe}",
            'omniwatch.yaml: resume.event_streams: expected true or false, got "maybe"',
        ),
        (
            f"streams: {{max_streams: 1{'0' * 30}}}",
            f"omniwatch.yaml: streams.max_streams: expected a whole number >= 1, <= 4096, got 1{'0' * 30}",
        ),
        ("sources: [tail:/a, 1]", "omniwatch.yaml: sources[1]: expected text: tail:PATH, "),
        (
            'sources: ["nosuch:abc"]',
            "omniwatch.yaml: sources[0]: expected text: tail:PATH, journal:UNIT, - or a path",
        ),
        (
            'sources: ["-", "journald:x"]',
            "omniwatch.yaml: sources[1]: expected text: tail:PATH, journal:UNIT",
        ),
        (
            "streams: {max_streams: 2.5}",
            "omniwatch.yaml: streams.max_streams: expected a whole number >= 1, <= 4096, got 2.5",
        ),
        (
            "objective: {in_time_share: 0.8}",
            "omniwatch.yaml: objective.page_burn: expected a number < 5, all answers late with an in_time_share of 0.8",
        ),
        (
            "frames: {cache_win: 3000, client_win: 6000}",
            "omniwatch.yaml: resume.turn_bytes: expected a whole number >= 11520000, frames.cache_win frames of 24 kHz "
            "PCM16, got 8388608",
        ),
        (
            "resume: {turn_bytes: 262144}",
            "omniwatch.yaml: resume.turn_bytes: expected a whole number >= 288000",
        ),
        (
            "resume: {total_bytes: 65536}",
            "omniwatch.yaml: resume.total_bytes: expected a whole number >= 288000",
        ),
        ("[]", 'omniwatch.yaml: expected a mapping, got "list"'),
        ("a: [", "omniwatch.yaml: "),
        ("a: \x00", "omniwatch.yaml: "),
    ],
)
def test_errors_are_one_line_with_a_path(text, message):
    with pytest.raises(settings.SettingsError) as caught:
        settings.parse(text)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.mkdir(), lambda p: p.write_bytes(b"\xff")])
def test_a_file_that_cannot_be_read_is_named(tmp_path, make):
    path = tmp_path / "omniwatch.yaml"
    make(path)
    with pytest.raises(settings.SettingsError, match=r"omniwatch\.yaml: "):
        settings.load(path)
