"""A new alert: the lints name each piece that it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import lints
from helpers.bundles import data_folders, promtool, rendered, replaced
from helpers.checks import RULES

NEW_ALERT = """
      - alert: VoiceMissing
        expr: omni_stream_silent_seconds > 5
        labels:
          severity: page
        annotations:
          summary: A listener hears nothing.
          description: Stream {{ $labels.stream }} has been silent for {{ $value }} s.
          runbook_url: https://wiki.example/runbooks/VoiceMissing.md
          dashboard_url: https://wiki.example/d/omni-streaming?var-stream={{ $labels.stream }}&viewPanel=11
"""
NEW_TESTS = """
rule_files: [streaming.rules.yaml]
evaluation_interval: 5s
tests:
  - interval: 5s
    input_series: [{series: 'omni_stream_silent_seconds{stream="0"}', values: "0 6"}]
    alert_rule_test:
      - {eval_time: 0s, alertname: VoiceMissing, exp_alerts: []}
      - eval_time: 5s
        alertname: VoiceMissing
        exp_alerts:
          - exp_labels: {severity: page, stream: "0"}
            exp_annotations:
              summary: A listener hears nothing.
              description: Stream 0 has been silent for 6 s.
              runbook_url: https://wiki.example/runbooks/VoiceMissing.md
              dashboard_url: https://wiki.example/d/omni-streaming?var-stream=0&viewPanel=11
"""
HEAD = """# VoiceMissing

## First 60 seconds

- **Till morning?** No: a listener waits.
- **Who suffers:** one listener.
- **Command:** `omniwatch status`
- **Picture:** Streaming, panel "Waiting for speech that is due": a line that climbs.

Severity: page · expected: never · escalate to: the owner of the model server · dashboard: Streaming
"""
PAGE = "\n".join([HEAD, *(f"## {section}\n\nWords.\n" for section in lints.alerts.SECTIONS[1:])])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's data folders with one more alert, its tests in a file of their own and its page."""
    root = data_folders(tmp_path_factory.mktemp("data"))
    rules = root / f"{RULES}.j2"
    rules.write_text(rules.read_text().rstrip("\n") + "\n" + NEW_ALERT)
    (root / "alerts/silent.test.yaml.j2").write_text(NEW_TESTS)
    (root / "runbooks/VoiceMissing.md").write_text(PAGE)
    return root


@pytest.fixture
def extended(data: Path) -> Iterator[Path]:
    """These folders, and as they were after the test: in new ones every template would be compiled anew."""
    before = {
        path: path.read_bytes() for folder in ("alerts", "runbooks") for path in (data / folder).iterdir()
    }
    yield data
    for folder in ("alerts", "runbooks"):
        for path in set((data / folder).iterdir()) - set(before):
            path.unlink()
    for path, content in before.items():
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)


def test_a_new_alert_with_all_its_pieces_passes(tmp_path, extended):
    directory = rendered(tmp_path / "out", root=extended)
    assert lints.of_bundle(directory) == []
    for subject in ("silent", "streaming"):
        assert promtool("test", "rules", f"alerts/{subject}.test.yaml", cwd=directory).returncode == 0


@pytest.mark.parametrize(
    ("name", "old", "new", "found"),
    [
        (f"{RULES}.j2", NEW_ALERT, NEW_ALERT.replace("severity: page", "team: speech"),
         "alert: VoiceMissing: no label severity"),
        (f"{RULES}.j2", "summary: A listener hears nothing.", 'summary: ""',
         "alert: VoiceMissing: no annotation summary"),
        (f"{RULES}.j2", "description: Stream {{ $labels.stream }} has", "about: Stream has",
         "alert: VoiceMissing: no annotation description"),
        (f"{RULES}.j2", "runbook_url: https://wiki.example/runbooks/VoiceMissing.md", "",
         "alert: VoiceMissing: no annotation runbook_url"),
        (f"{RULES}.j2", "dashboard_url:", "dashboard:",
         "alert: VoiceMissing: no annotation dashboard_url: no panel of a dashboard has it among its `alerts`"),
        (f"{RULES}.j2", "&viewPanel=11", "",
         "alert: VoiceMissing: dashboard_url names no panel (viewPanel=)"),
        (f"{RULES}.j2", "runbooks/VoiceMissing.md", "runbooks/Silence.md",
         "alert: VoiceMissing: runbook_url ends in Silence.md, not in VoiceMissing.md"),
        ("alerts/silent.test.yaml.j2", NEW_TESTS, "rule_files: []\ntests: []\n",
         "alert: VoiceMissing: no unit test in which it fires"),
        ("alerts/silent.test.yaml.j2", "      - {eval_time: 0s, alertname: VoiceMissing, exp_alerts: []}\n", "",
         "alert: VoiceMissing: no unit test in which it is silent"),
        (f"{RULES}.j2", "summary: A listener hears nothing.", "summary: a listener hears nothing",
         "alert: VoiceMissing: the summary is not a plain sentence: "
         "a capital first, a full stop last, no template"),
        (f"{RULES}.j2", "summary: A listener hears nothing.", "summary: A listener {{ $labels.stream }} hears nothing.",
         "alert: VoiceMissing: the summary is not a plain sentence: "
         "a capital first, a full stop last, no template"),
        (f"{RULES}.j2", "{{ $value }}", "some", "alert: VoiceMissing: the description does not say the value"),
        (f"{RULES}.j2", "alert: VoiceMissing", "alert: stream_silent",
         "alert: stream_silent: the name is not in CamelCase"),
        ("runbooks/VoiceMissing.md", "## Impact\n\nWords.", "## Impact",
         'runbook: VoiceMissing.md: nothing under "Impact"'),
        ("runbooks/VoiceMissing.md", "## Mitigation", "## Mending",
         'runbook: VoiceMissing.md: nothing under "Mitigation"'),
        ("runbooks/VoiceMissing.md", HEAD, "# VoiceMissing\n",
         'runbook: VoiceMissing.md: nothing under "First 60 seconds"'),
    ],
)  # fmt: skip
def test_each_piece_that_a_new_alert_lacks_is_found(tmp_path, extended, name, old, new, found):
    replaced(extended / name, old, new)
    assert found in lints.of_bundle(rendered(tmp_path / "out", root=extended))


def test_an_alert_without_its_page_and_a_page_without_its_alert_are_found(tmp_path, extended):
    (extended / "runbooks/VoiceMissing.md").rename(extended / "runbooks/Silence.md")
    assert lints.of_bundle(rendered(tmp_path / "out", root=extended)) == [
        "alert: VoiceMissing: no runbook page runbooks/VoiceMissing.md",
        "runbook: Silence.md: no alert has this name",
    ]
