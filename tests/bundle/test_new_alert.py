"""A new alert takes five places: rule, unit tests, page, panel and catalogue. The lints name each that it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import lints
from helpers.bundles import data_folders, promtool, rendered, replaced
from helpers.checks import RULES
from omniwatch.bundle import render
from omniwatch.bundle.catalogue import FILE as CATALOGUE

pytestmark = pytest.mark.programs

PANEL = "dashboards/streaming.yaml.j2"
TESTS = "alerts/silent.test.yaml.j2"
LINKS = '[[ links("VoiceMissing") ]]'
NEW_ALERT = """
      - alert: VoiceMissing
        expr: omni_stream_silent_seconds > 5
        labels:
          severity: [[ catalogue.VoiceMissing.severity ]]
        annotations:
          summary: [[ catalogue.VoiceMissing.summary ]]
          description: Stream {{ $labels.stream }} has been silent for {{ $value }} s.
[[ links("VoiceMissing") ]]
"""
NEW_TESTS = """
[% from "alerts/macros.jinja" import fires, silent with context %]
rule_files: [streaming.rules.yaml]
evaluation_interval: 5s
tests:
  - interval: 5s
    input_series: [{series: 'omni_stream_silent_seconds{stream="0"}', values: "0 6"}]
    alert_rule_test:
[[ silent("VoiceMissing", [0]) -]]
[[ fires("VoiceMissing", 1, '{severity: page, stream: "0"}', "Stream 0 has been silent for 6 s.") ]]
"""
ENTRY = """
VoiceMissing:
  fault: speech
  severity: page
  why: A listener waits.
  rank: 35
  summary: A listener hears nothing.
  summary_zh: 听者什么也听不到。
  first_60_zh: {morning: 有听者在等待。, who: 一名听者。, picture: 上升的线。, expected: 从不}
  failures:
    - {failure: It is mute, area: What the listener suffers, tests: [tests/test_x.py]}
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
    """The project's data folders with one more alert, its tests in a file of their own."""
    root = data_folders(tmp_path_factory.mktemp("data"))
    rules = root / f"{RULES}.j2"
    rules.write_text(rules.read_text().rstrip("\n") + "\n" + NEW_ALERT)
    (root / TESTS).write_text(NEW_TESTS)
    (root / "runbooks/VoiceMissing.md").write_text(PAGE)
    replaced(root / PANEL, "alerts: [StreamSilent", "alerts: [VoiceMissing, StreamSilent")
    (root / CATALOGUE).write_text((root / CATALOGUE).read_text() + ENTRY)
    return root


@pytest.fixture
def extended(data: Path) -> Iterator[Path]:
    """These folders, and as they were after the test: in new ones every template would be compiled anew."""
    folders = ("alerts", "dashboards", "runbooks")
    before = {path: path.read_bytes() for folder in folders for path in (data / folder).iterdir()}
    yield data
    for folder in folders:
        for path in set((data / folder).iterdir()) - set(before):
            path.unlink()
    for path, content in before.items():
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)


def found_in(root: Path, directory: Path) -> list[str]:
    return lints.of_bundle(rendered(directory, root=root), root)


def test_a_new_alert_in_its_five_places_passes(tmp_path, extended):
    assert found_in(extended, tmp_path) == []
    for subject in ("silent", "streaming"):
        done = promtool("test", "rules", f"alerts/{subject}.test.yaml", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "old", "new", "found"),
    [
        (f"{RULES}.j2", "severity: [[ catalogue.VoiceMissing.severity ]]", "team: speech",
         "alert: VoiceMissing: no label severity"),
        (f"{RULES}.j2", "severity: [[ catalogue.VoiceMissing.severity ]]", "severity: ticket",
         "catalogue: VoiceMissing: severity is not the catalogue's"),
        (f"{RULES}.j2", "[[ catalogue.VoiceMissing.summary ]]", '""',
         "alert: VoiceMissing: no annotation summary"),
        (f"{RULES}.j2", "[[ catalogue.VoiceMissing.summary ]]", "A listener hears little.",
         "catalogue: VoiceMissing: summary is not the catalogue's"),
        (f"{RULES}.j2", "description: Stream {{ $labels.stream }} has", "about: Stream has",
         "alert: VoiceMissing: no annotation description"),
        (f"{RULES}.j2", LINKS, "", "alert: VoiceMissing: no annotation runbook_url"),
        (f"{RULES}.j2", LINKS, "          runbook_url: https://wiki.example/Silence.md",
         "alert: VoiceMissing: runbook_url ends in Silence.md, not in VoiceMissing.md"),
        (f"{RULES}.j2", LINKS, "          dashboard_url: https://wiki.example/d/omni-streaming",
         "alert: VoiceMissing: dashboard_url names no panel (viewPanel=)"),
        (PANEL, "[VoiceMissing, StreamSilent", "[StreamSilent",
         "alert: VoiceMissing: no annotation dashboard_url: no panel of a dashboard has it among its `alerts`"),
        (TESTS, NEW_TESTS, "rule_files: []\ntests: []\n", "alert: VoiceMissing: no unit test in which it fires"),
        (TESTS, '[[ silent("VoiceMissing", [0]) -]]\n', "",
         "alert: VoiceMissing: no unit test in which it is silent"),
        (CATALOGUE, "summary: A listener hears nothing.", "summary: a listener hears nothing",
         "alert: VoiceMissing: the summary is not a plain sentence: "
         "a capital first, a full stop last, no template"),
        (CATALOGUE, "summary: A listener hears nothing.", "summary: A listener {{ $labels.stream }} hears nothing.",
         "alert: VoiceMissing: the summary is not a plain sentence: "
         "a capital first, a full stop last, no template"),
        (CATALOGUE, "- {failure: It is mute,", "- {failure: It is mute, cause: mute,",
         "catalogue: VoiceMissing: the rule gives no cause mute"),
        (f"{RULES}.j2", NEW_ALERT, "", "catalogue: VoiceMissing: no rule has this name"),
        (f"{RULES}.j2", "{{ $value }}", "some", "alert: VoiceMissing: the description does not say the value"),
        (f"{RULES}.j2", "alert: VoiceMissing", "alert: stream_silent",
         "alert: stream_silent: the name is not in CamelCase"),
        (f"{RULES}.j2", "alert: VoiceMissing", "alert: Silent",
         "catalogue: Silent: no entry in alerts/catalogue.yaml"),
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
    assert found in found_in(extended, tmp_path)


def test_an_alert_without_its_page_and_a_page_without_its_alert_are_found(tmp_path, extended):
    (extended / "runbooks/VoiceMissing.md").rename(extended / "runbooks/Silence.md")
    assert found_in(extended, tmp_path) == [
        "alert: VoiceMissing: no runbook page runbooks/VoiceMissing.md",
        "runbook: Silence.md: no alert has this name",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (ENTRY, "", "no entry VoiceMissing"),
        ("  rank: 35\n", "", "a page, and no other alert, has a rank - at `$[...]`"),
        ("  fault: speech\n  severity: page\n  why: A listener waits.", "  severity: page\n  why: A listener waits.",
         "a page and a ticket have a fault, a heartbeat has none - at `$[...]`"),
        ("rank: 35", "rank: 40", "two pages have the same rank"),
        ("  rank: 35\n", "  rank: 35\n  explains: [{targets: [{alerts: [Silence]}]}]\n",
         "VoiceMissing explains Silence, which has no entry"),
        ("VoiceMissing:", "VoiceMissing: [", "while parsing a flow sequence"),
        ("  why: A listener waits.\n", "", "Object missing required field `why` - at `$[...]`"),
    ],
)  # fmt: skip
def test_an_entry_that_does_not_hold_is_one_line(tmp_path, extended, old, new, said):
    replaced(extended / CATALOGUE, old, new)
    with pytest.raises(render.RenderError) as caught:
        rendered(tmp_path, root=extended)
    assert str(caught.value).startswith(f"{CATALOGUE}: {said}")
    assert "\n" not in str(caught.value)
