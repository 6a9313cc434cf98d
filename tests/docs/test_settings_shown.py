"""Every setting that a page names exists, and every YAML block of settings loads."""

from __future__ import annotations

import re

import msgspec
import pytest
import yaml

from helpers import manual
from omniwatch import settings
from omniwatch.centre import inventory

GROUPS = {field.name: field.type for field in msgspec.structs.fields(settings.Settings)}
YAML = [block for page in manual.PAGES for block in manual.blocks(page) if block.language in ("yaml", "yml")]


def exists(path: str) -> bool:
    """Whether a dotted name is one of the settings; `_*` at its end stands for several."""
    kind: type = settings.Settings
    for step in path.split("."):
        if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
            return False
        fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
        if step not in fields:
            return False
        kind = fields[step]
        inner = getattr(kind, "__args__", ())
        kind = next((one for one in inner if isinstance(one, type) and issubclass(one, msgspec.Struct)), kind)
    return True


def settings_named(text: str) -> set[str]:
    groups = "|".join(name for name in GROUPS if name != "sources")
    return set(re.findall(rf"`((?:{groups})\.[a-z_]+(?:\.[a-z_]+)*)`", text.replace("[]", "")))


@pytest.mark.parametrize("page", manual.PAGES, ids=manual.name_of)
def test_settings_named_exist(page):
    if page.name == "CHANGELOG.md":
        return
    named = settings_named(page.read_text(encoding="utf-8"))
    assert sorted(name for name in named if not exists(name)) == []


def test_a_setting_that_does_not_exist_is_found():
    assert settings_named("`alerts.drift_pagems` and `alerts.rtt_page_ms`") == {
        "alerts.drift_pagems",
        "alerts.rtt_page_ms",
    }
    assert exists("alerts.rtt_page_ms")
    assert exists("notify.robots.kind")
    assert not exists("alerts.drift_pagems")
    assert not exists("alerts.rtt_page_ms.more")


@pytest.mark.parametrize(
    "block", YAML, ids=lambda block: f"{manual.name_of(block.page)}: {block.text[:30]!r}"
)
def test_yaml_blocks_load(block, tmp_path):
    """A block is the settings, a fleet file, variables of the role, or another program's file that is at least YAML."""
    held = yaml.safe_load(block.text)
    if set(held) <= set(GROUPS):
        settings.parse(block.text)
    elif "devices" in held:
        file = tmp_path / "fleet.yaml"
        file.write_text(block.text, encoding="utf-8")
        inventory.load(file)
    elif "omniwatch_settings" in held:
        # Ansible puts the host's name there first.
        settings.parse(yaml.safe_dump(held["omniwatch_settings"]).replace("{{ inventory_hostname }}", "orin"))
    else:
        assert "omniwatch" not in block.text


def test_there_are_blocks():
    assert len(YAML) >= 8
