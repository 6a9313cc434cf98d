"""The generated parts of the manual are current, and every setting and event field has a description of its own."""

from __future__ import annotations

import sys
from typing import get_args

import msgspec
import pytest

from helpers import manual
from omniwatch import events, settings
from omniwatch.bundle import catalogue

sys.path.insert(0, str(manual.ROOT / "docs"))

import field_docs
import first_minute
import reference
import rooms


def structs(kind: type[msgspec.Struct]) -> list[type[msgspec.Struct]]:
    inner = [field.struct for field in field_docs.fields(kind) if field.struct is not None]
    return [kind, *(one for struct in inner for one in structs(struct))]


@pytest.mark.slow
def test_references_are_current():
    """`make docs` writes them."""
    assert sorted(manual.name_of(path) for path in reference.stale()) == []


def test_a_page_without_a_place_is_refused():
    with pytest.raises(ValueError, match="no place"):
        reference.filled("# Title\n", "settings", "text")
    text = "a\n<!-- generated: x -->\nold\n<!-- end of x -->\nb\n"
    assert reference.filled(text, "x", "new") == "a\n<!-- generated: x -->\n\nnew\n\n<!-- end of x -->\nb\n"


@pytest.mark.parametrize(
    "struct", dict.fromkeys(structs(settings.Settings)), ids=lambda struct: struct.__name__
)
def test_every_setting_is_described(struct):
    plain = [field for field in field_docs.fields(struct) if field.struct is None or field.is_list]
    assert [field.name for field in plain if not field.doc] == []
    docs = [field.doc for field in plain]
    assert len(set(docs)) == len(docs)


@pytest.mark.parametrize("struct", get_args(events.AnyEvent), ids=lambda struct: struct.__name__)
def test_every_event_field_is_described(struct):
    assert [field.name for field in field_docs.fields(struct) if not field.doc] == []


def test_defaults_and_limits_are_those_of_the_types():
    by_name = {field.name: field for field in field_docs.fields(settings.Alerts)}
    drift = by_name["drift_page_ms"]
    assert (drift.default, drift.unit, drift.limits, drift.kind) == (
        "`60`",
        "ms",
        "≥ 0.001, ≤ 1e+09",
        "number",
    )
    share = by_name["turns_share"]
    assert (share.default, share.limits) == ("`0.2`", "≥ 0.0001, ≤ 0.9999")


def test_every_setting_and_command_is_in_the_reference():
    text = (manual.ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert "`fleet.queue_max_bytes`" in text
    assert "`notify.robots[].kind`" in text
    commands = (manual.ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert "## omniwatch install\n" in commands
    assert "### omniwatch fleet status\n" in commands


def test_floors_follow_the_imports():
    graph = {"cli": {"core", "web"}, "web": {"core"}, "core": set()}
    assert rooms.floors(graph) == [["core"], ["web"], ["cli"]]
    assert rooms.reduced(graph) == {"cli": {"web"}, "web": {"core"}, "core": set()}


def test_rooms_in_a_circle_come_last():
    assert rooms.floors({"a": {"b"}, "b": {"a"}, "c": set()}) == [["c"], ["a", "b"]]


def test_a_runbook_with_another_head_is_named():
    words = catalogue.load()["CodecDrift"].first_60_zh
    with pytest.raises(ValueError, match=r"runbooks/New\.md: its head"):
        first_minute.section("New", "# New\n\n- **Till morning?** Perhaps.\n", words)
