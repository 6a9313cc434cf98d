"""Tell the centre that this device goes off as planned, by a sample given to the device's vmagent."""

from __future__ import annotations

import json

from omniwatch.settings import Settings
from omniwatch.system import http
from omniwatch.system.errors import UserError

OFF = "uplink:off_seconds"
"""The device's clock when it said that it goes off. Sent once, by no rule."""
TIMEOUT_S = 5.0


class LeavingError(UserError):
    """The word was not taken."""


def line(settings: Settings, now: float) -> str:
    """Return the sample in Prometheus' text format, with the labels of all that goes up."""
    fleet = settings.fleet
    labels = {
        "site": fleet.site,
        "device": settings.site.device,
        "model": fleet.model,
        "release": fleet.release,
    }
    written = ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels.items())
    return f"{OFF}{{{written}}} {now:.3f}\n"


def say_off(settings: Settings, now: float) -> None:
    """Give the sample to vmagent, which sends what it has before it ends. Raises LeavingError."""
    fleet = settings.fleet
    if not fleet.remote_write_url:
        raise LeavingError("fleet.remote_write_url is empty: this device has no uplink to say it by")
    if fleet.agent != "vmagent":
        raise LeavingError(
            "fleet.agent: prometheus takes no word; give this device `hours` in the fleet file"
        )
    address = f"http://{fleet.agent_address}/api/v1/import/prometheus"
    try:
        with http.ask(address, timeout_s=TIMEOUT_S, body=line(settings, now).encode()) as answer:
            if not answer.ok:
                raise LeavingError(f"{address}: HTTP {answer.status} {answer.reason}")
    except http.HttpError as error:
        raise LeavingError(f"{address}: {error}") from error
