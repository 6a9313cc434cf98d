"""Check the head of a runbook page: what whoever is paged reads in the first 60 seconds."""

from __future__ import annotations

import re
from collections.abc import Iterator

HEADING = "First 60 seconds"
BULLETS = ("Till morning?", "Who suffers:", "Command:", "Picture:")
FACTS = ("Severity", "expected", "escalate to", "dashboard")
"""What stands in the line below the bullets, as `NAME: VALUE`, with ` · ` between."""
ANSWERS = {"page": ("No", "Yes"), "ticket": ("Yes",), "none": ("No", "Yes")}
"""The first word that answers "Till morning?", for each severity."""
FREQUENCIES = ("never", "less than once a month", "less than once a week", "after", "always")
"""What `expected` begins with: how often the alert fires on a healthy device."""
ROLES = tuple(
    f"the owner of the {what}" for what in ("model server", "device", "network", "client", "monitoring")
)
READING = (
    r"omniwatch ((fleet )?status|explain)",
    r"systemctl (status|show|cat|list-units)( [\w.@=-]+)+",
    r"journalctl (-k|-u [\w.@-]+) --since -\d+(s|min|h) --no-pager( --grep '[^']+')?",
    r"curl -s http://[\w.:/-]+",
    r"promtool query instant http://127\.0\.0\.1:9090 '[^']+'",
)
"""Commands that change nothing, whoever types them, and whatever state the device is in."""
_PICTURE = re.compile(r'(?P<dashboard>[^",]+), panel "(?P<panel>[^"]+)"[:;.].*')


def faults(text: str, severity: str) -> Iterator[str]:
    """Yield what is wrong with a page's head, for an alert of this severity."""
    heading = re.search(r"^## +(.+?) *$", text, flags=re.MULTILINE)
    if heading is None or heading[1] != HEADING:
        yield f'does not begin with "{HEADING}"'
        return
    bullets, facts = _bullets(text), _facts(text)
    if tuple(bullets) != BULLETS:
        yield f"the bullets of its head are not {', '.join(BULLETS)} in this order"
        return
    if tuple(facts) != FACTS:
        yield f"below the bullets there is no line of {', '.join(FACTS)}"
        return
    answers = ANSWERS.get(severity, ())
    if bullets["Till morning?"].split(",")[0].split(":")[0] not in answers:
        yield f"Till morning? of severity {severity} begins with {' or '.join(answers) or 'nothing known'}"
    yield from _command(bullets["Command:"])
    if facts["Severity"] != severity:
        yield f"Severity: {facts['Severity']}, the rule's is {severity}"
    if not re.match(rf"({'|'.join(FREQUENCIES)})\b", facts["expected"]):
        yield f"expected: {facts['expected']} begins with none of {', '.join(FREQUENCIES)}"
    if facts["escalate to"] not in ROLES:
        yield f"escalate to: {facts['escalate to']} is none of {', '.join(ROLES)}"
    shown = picture(text)
    if shown is None:
        yield 'Picture: is not DASHBOARD, panel "TITLE"'
    elif facts["dashboard"] != shown[0]:
        yield f"dashboard: {facts['dashboard']}, the picture's is {shown[0]}"


def picture(text: str) -> tuple[str, str] | None:
    """Return the dashboard and the panel that the head of a page names; None where it names none."""
    found = _PICTURE.fullmatch(_bullets(text).get("Picture:", ""))
    return (found["dashboard"], found["panel"]) if found else None


def _head(text: str) -> str:
    """Return what stands under the first heading."""
    return "".join(re.split(r"^## .*$", text, maxsplit=2, flags=re.MULTILINE)[1:2])


def _bullets(text: str) -> dict[str, str]:
    parts = re.findall(r"^- \*\*(.+?)\*\* (.+(?:\n  .+)*)$", _head(text), flags=re.MULTILINE)
    return {name: " ".join(words.split()) for name, words in parts}


def _facts(text: str) -> dict[str, str]:
    lines = [line for line in _head(text).splitlines() if line.startswith("Severity: ")]
    parts = lines[0].split(" · ") if len(lines) == 1 else []
    return {name: value.strip() for name, _, value in (part.partition(":") for part in parts)}


def _command(words: str) -> Iterator[str]:
    commands = re.findall(r"`([^`]+)`", words)
    if len(commands) != 1:
        yield f"Command: has {len(commands)} commands in backquotes, not one"
    for command in commands:
        if not any(re.fullmatch(shape, command) for shape in READING):
            yield f"Command: `{command}` is none that only reads"
