"""A chat robot is in each of its places: settings, file, stand-in, format, sample and manual."""

from __future__ import annotations

from typing import Literal, get_args, get_type_hints

import pytest

from helpers import chat_formats, fake_robots
from helpers.paths import CLONE
from omniwatch.notify import robots
from omniwatch.settings.receivers import Robot

KINDS = get_args(get_type_hints(Robot)["kind"])
TEXTS = ("deploy/omniwatch.sample.yaml.j2", "docs/paging.md")


def test_the_kinds_of_the_settings_are_the_files() -> None:
    assert get_type_hints(Robot)["kind"] == Literal[tuple(sorted(robots.discover()))]


@pytest.mark.parametrize("kind", KINDS)
def test_a_robot_has_a_stand_in_and_is_shown(kind: str) -> None:
    assert kind in fake_robots.CHECKS
    assert kind in chat_formats.FORMATS
    assert [text for text in TEXTS if f"kind: {kind}" not in (CLONE / text).read_text()] == []
