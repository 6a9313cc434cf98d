"""Ask the bridge to chat robots what became of the messages that it took: its /deliveries.json."""

from __future__ import annotations

from typing import Literal

import msgspec

from omniwatch.settings.receivers import Robot
from omniwatch.system import http
from omniwatch.system.errors import UserError

PATH = "/deliveries.json"
MAX_BYTES = 4 * 2**20


class BridgeError(UserError):
    """The bridge is not reached, or answers something else."""


class Undelivered(msgspec.Struct, frozen=True):
    """A message that its robot has not taken, and how long ago it came."""

    title: str
    age_s: float


class Outcome(msgspec.Struct, frozen=True):
    """What became of a group's message, how long ago; `later`: it is tried again. `error` is the robot's word."""

    group: str
    result: Literal["delivered", "later", "refused", "expired"]
    age_s: float
    error: str = ""


class RobotReport(msgspec.Struct, frozen=True):
    """One robot. `failing_s` is for how long every attempt has failed; None: the last one did not."""

    robot: str
    severities: list[str]
    failing_s: float | None = None
    error: str = ""
    undelivered: list[Undelivered] = []
    outcomes: list[Outcome] = []


class Report(msgspec.Struct, frozen=True):
    """All robots of a bridge."""

    robots: list[RobotReport]


def robot_name(robot: Robot, number: int) -> str:
    """Return what the bridge calls a robot, by its place in the settings' list."""
    return f"{robot.kind}-{number}"


def report(address: str, timeout_s: float) -> Report:
    """Return what a bridge says. Raises BridgeError."""
    try:
        with http.ask(f"{address}{PATH}", timeout_s=timeout_s) as answer:
            if answer.status == 404:
                raise BridgeError(f"{address}: a bridge of an older version, which does not say: restart it")
            if not answer.ok:
                raise BridgeError(f"{address}: HTTP {answer.status}")
            body = answer.read(MAX_BYTES)
    except http.HttpError as error:
        raise BridgeError(f"{address}: {error}") from error
    try:
        return msgspec.json.decode(body, type=Report)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BridgeError(f"{address}: not the bridge's answer: {error}") from error
