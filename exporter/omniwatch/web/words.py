"""The words of the live page and of `watch`, in both languages: static/strings.json, which the page reads as well."""

from __future__ import annotations

import time
from importlib import resources
from typing import Any

import msgspec

LANGUAGES = ("en", "zh")
Strings = dict[str, str]


def load() -> dict[str, Strings]:
    """Return the strings by language and key."""
    file = resources.files("omniwatch.web").joinpath("static/strings.json")
    return msgspec.json.decode(file.read_bytes(), type=dict[str, Strings])


def state_line(state: dict[str, Any], strings: Strings) -> str:
    """Return a feed's state as a sentence, its times by the clock of this machine."""
    since_t, values = state["since"], dict(state["arguments"])
    for kind in ("symptom", "cause"):
        if kind in values:
            values[kind] = strings.get(f"{kind}.{values[kind]}", values[kind])
    if "slots" in values:
        values["slots"] = ", ".join(map(str, values["slots"]))
    if since_t is not None:
        values["since"] = time.strftime("%H:%M:%S", time.localtime(since_t))
    key = f"state.{state['key']}"
    if since_t is None:
        key = f"{key}.now" if f"{key}.now" in strings else key
    # Text of a writer's, such as the name of a file, may hold braces: each place is filled once.
    pieces = strings[key].split("{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}")
        filled.append(f"{values.get(name, name)}{rest}")
    return "".join(filled)
