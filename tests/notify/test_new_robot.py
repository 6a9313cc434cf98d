"""A chat robot is in each of its places: settings, file, stand-in, format, sample and manual."""

from __future__ import annotations

import json
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
    assert kind in fake_robots.ENDPOINTS
    assert kind in chat_formats.FORMATS
    assert [text for text in TEXTS if f"kind: {kind}" not in (CLONE / text).read_text()] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_robot_has_its_limits_and_knows_that_a_message_was_taken(kind: str) -> None:
    robot = robots.of(Robot(kind=kind, url_file="u"))
    assert robot.max_bytes > 0
    assert "{}" in robot.at
    assert robot.too_fast or type(robot).verdict is not robots.ChatRobot.verdict, (
        "when is a message tried again?"
    )
    answer = json.dumps(fake_robots.ENDPOINTS[kind].taken).encode()
    assert robot.verdict(200, answer) == (robots.Verdict.DELIVERED, ""), (
        "else each message is tried until it expires"
    )
