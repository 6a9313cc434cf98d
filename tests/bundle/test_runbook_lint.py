"""The head of a runbook page: each shipped one is as it should be, and each thing amiss with one is found."""

from __future__ import annotations

import re

import pytest

from helpers import lints
from helpers.bundles import data_folders, rendered, replaced
from helpers.lints import runbooks
from helpers.runbooks import PAGES

PAGE = """# VoiceMissing

## First 60 seconds

- **Till morning?** No: a listener waits in the middle of a sentence, and goes on
  waiting.
- **Who suffers:** one listener.
- **Command:** `systemctl status --no-pager qwen3-omni.service`
- **Picture:** Streaming, panel "Waiting for speech that is due": a line that climbs.

Severity: page · expected: less than once a month · escalate to: the owner of the model server · dashboard: Streaming

## Meaning

Words.
"""
COMMAND = "systemctl status --no-pager qwen3-omni.service"


def test_a_head_as_it_should_be_passes():
    assert list(runbooks.faults(PAGE, "page")) == []
    assert runbooks.picture(PAGE) == ("Streaming", "Waiting for speech that is due")


def test_no_heading_is_no_picture():
    assert runbooks.picture("# VoiceMissing\n") is None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_bullet_of_a_shipped_page_fits_two_lines(page):
    head = page.read_text().partition("## Meaning")[0]
    assert all(len(line) <= 240 for line in head.splitlines())
    assert len(re.findall(r"^Severity: ", head, flags=re.MULTILINE)) == 1


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("## First 60 seconds", "## At first", 'does not begin with "First 60 seconds"'),
        ("## First 60 seconds", "## Meaning\n\nWords.\n\n## First 60 seconds",
         'does not begin with "First 60 seconds"'),
        ("- **Who suffers:** one listener.\n", "",
         "the bullets of its head are not Till morning?, Who suffers:, Command:, Picture: in this order"),
        ("**Who suffers:** one", "**Till morning?** one",
         "the bullets of its head are not Till morning?, Who suffers:, Command:, Picture: in this order"),
        ("- **Picture:**", "- **Whose:** nobody's.\n- **Picture:**",
         "the bullets of its head are not Till morning?, Who suffers:, Command:, Picture: in this order"),
        (" · escalate to: the owner of the model server", "",
         "below the bullets there is no line of Severity, expected, escalate to, dashboard"),
        ("Severity: page", "A page",
         "below the bullets there is no line of Severity, expected, escalate to, dashboard"),
        ("No: a listener", "Perhaps: a listener",
         "Till morning? of severity page begins with No or Yes"),
        (f"`{COMMAND}`", COMMAND, "Command: has 0 commands in backquotes, not one"),
        (f"`{COMMAND}`", f"`{COMMAND}`, then `omniwatch status`", "Command: has 2 commands in backquotes, not one"),
        *(
            (COMMAND, command, f"Command: `{command}` is none that only reads")
            for command in (
                "systemctl restart qwen3-omni.service",
                "systemctl status x; systemctl restart x",
                "journalctl --rotate",
                "journalctl -u x --since -15min --no-pager | tail",
                "omniwatch uninstall",
                "curl -s -X POST http://127.0.0.1:9090/-/quit",
                "curl -s http://127.0.0.1:9842/metrics > /run/omniwatch/events.jsonl",
                "promtool query instant http://127.0.0.1:9090 up",
                "rm -r /run/omniwatch",
            )
        ),
        ("Severity: page", "Severity: ticket", "Severity: ticket, the rule's is page"),
        ("expected: less than once a month", "expected: now and then",
         "expected: now and then begins with none of never, less than once a month, less than once a week, after, always"),
        ("expected: less than once a month", "expected: nevertheless",
         "expected: nevertheless begins with none of never, less than once a month, less than once a week, after, always"),
        ("escalate to: the owner of the model server", "escalate to: somebody",
         f"escalate to: somebody is none of {', '.join(runbooks.ROLES)}"),
        (', panel "Waiting for speech that is due"', "", 'Picture: is not DASHBOARD, panel "TITLE"'),
        ("dashboard: Streaming", "dashboard: Device", "dashboard: Device, the picture's is Streaming"),
    ],
)  # fmt: skip
def test_each_thing_amiss_with_a_head_is_found(old, new, found):
    assert PAGE.count(old) == 1
    assert found in list(runbooks.faults(PAGE.replace(old, new), "page"))


@pytest.mark.parametrize(
    ("severity", "found"),
    [("ticket", "Till morning? of severity ticket begins with Yes"),
     ("minor", "Till morning? of severity minor begins with nothing known")],
)  # fmt: skip
def test_what_till_morning_begins_with_is_the_severitys(severity, found):
    assert found in list(runbooks.faults(PAGE.replace("Severity: page", f"Severity: {severity}"), severity))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("Severity: page", "Severity: ticket", "Severity: ticket, the rule's is page"),
        ('panel "Voice against picture"', 'panel "Turns out of sync"',
         'Picture: Streaming, panel "Turns out of sync"; the alert leads to Streaming, panel "Voice against picture"'),
        ('Streaming, panel "Voice against picture"', 'Resumption, panel "Voice against picture"',
         'Picture: Resumption, panel "Voice against picture"; the alert leads to Streaming, panel "Voice against picture"'),
    ],
)  # fmt: skip
def test_a_head_is_held_against_its_rule_and_its_panel(tmp_path, old, new, found):
    root = data_folders(tmp_path / "data")
    replaced(root / "runbooks/CodecDrift.md", old, new)
    assert f"runbook: CodecDrift.md: {found}" in lints.of_bundle(rendered(tmp_path / "out", root=root))
