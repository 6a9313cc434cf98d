"""What a setting can be: numbers with bounds that every consumer takes, addresses, names, paths. Texts have a rule for all."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import Meta

Positive = Annotated[float, Meta(ge=0.001, le=1e9)]
Share = Annotated[float, Meta(ge=0.0001, le=0.9999)]
Count = Annotated[int, Meta(ge=1, le=2**53)]
"""As many as a double counts: Prometheus' numbers are doubles."""
Seconds = Annotated[int, Meta(ge=1, le=315_360_000)]
"""At most ten years: Prometheus' durations end at 292."""
Hold = Annotated[int, Meta(ge=0, le=315_360_000)]

_HOST = r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])"
_PORT = ":(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5]?[0-9]{1,4})"
_ESCAPED = "%[0-9A-Fa-f]{2}"
_PATH = rf"([/?#]([^\x00-\x20\x7f\"<>\\^`{{|}}%]|{_ESCAPED})*)?"
_HTTP = rf"https?://([A-Za-z0-9._~!$&'()*+,;=:-]|{_ESCAPED})*@?{_HOST}({_PORT})?{_PATH}"

PATTERNS: dict[str, str] = {}
"""What each pattern asks for, in words."""


def _like(words: str, pattern: str, min_length: int | None = None, max_length: int | None = None) -> Meta:
    PATTERNS[pattern] = words
    return Meta(pattern=pattern, min_length=min_length, max_length=max_length)


_NO_SECRET = "without name, password, commas, quotes, spaces"
HttpUrl = Annotated[str, _like("http:// or https:// address", rf"^{_HTTP}\Z")]
Url = Annotated[str, _like("http:// or https:// address, or empty", rf"^({_HTTP})?\Z")]
Address = Annotated[str, _like("HOST:PORT, or :PORT", rf"^{_HOST}?{_PORT}\Z")]
OptionalAddress = Annotated[str, _like("HOST:PORT, or empty", rf"^({_HOST}?{_PORT})?\Z")]
HostName = Annotated[
    str, _like("letters, digits, dots, hyphens, underscores", r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,252})\Z")
]
WriteUrl = Annotated[
    str,
    _like(
        f"http:// or https:// address {_NO_SECRET}, or empty",
        rf"^(https?://{_HOST}({_PORT})?([/?]([A-Za-z0-9._~:/?@!$&()*+;=-]|{_ESCAPED})*)?)?\Z",
    ),
]
"""An address that goes into a command line: without name and password, which everybody on the device could read there, and
without what vmagent (a comma, a quote) or systemd (a space) would take for the beginning of another word."""
AlertmanagerUrl = Annotated[
    str,
    _like(
        "http:// or https:// address without name, password, query",
        rf"^https?://{_HOST}({_PORT})?(/[A-Za-z0-9._~/-]*)?\Z",
    ),
]
_LABEL = r'^[^"\\$]*\Z'
Label = Annotated[str, _like('without ", $ and \\', _LABEL, 1, 128)]
"""The value of a label. Prometheus puts an environment variable in the place of a $NAME."""
OptionalLabel = Annotated[str, _like('without ", $ and \\', _LABEL, max_length=128)]
Line = Annotated[
    str, _like("one line", r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*\Z", max_length=200)
]
"""Nothing in it ends a line, moves a terminal's cursor or turns the direction of writing."""
AbsolutePath = Annotated[str, _like("absolute path", r"^/")]
OptionalPath = Annotated[str, _like("absolute path, or empty", r"^(/.*)?\Z")]
UnitName = Annotated[
    str, _like("name of a service, scope or slice", r"^[A-Za-z0-9:_.@\\-]{1,200}\.(service|scope|slice)\Z")
]

_NAME = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
KubernetesName = Annotated[
    str, _like("name of 63 lower case letters, digits, hyphens, at most", rf"^{_NAME}\Z")
]
KeyValue = Annotated[
    str,
    _like(
        "KEY=VALUE of a Kubernetes label",
        rf"^({_NAME}(\.{_NAME})*/)?[A-Za-z0-9]([A-Za-z0-9._-]{{0,61}}[A-Za-z0-9])?=([A-Za-z0-9]([A-Za-z0-9._-]{{0,61}}[A-Za-z0-9])?)?\Z",
    ),
]
ImageName = Annotated[str, _like("name of a container image, or empty", r"^([a-z0-9][A-Za-z0-9._:/@-]*)?\Z")]

SOURCE_WORDS = "tail:PATH, journal:UNIT, - or a path (tail:PATH where its name has a colon)"
SOURCE = r"^(?!(?!tail:|journal:)[A-Za-z][A-Za-z0-9+.-]*:)"
SourceSpec = Annotated[str, _like(SOURCE_WORDS, SOURCE)]
"""A source of events. Another word before a colon is taken for a scheme that does not exist, not for a file's name."""

_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_TEMPLATE = re.compile(r"\{\{")
_ESCAPED_FOR_TEMPLATES = "site.access"
"""The setting whose {{ is escaped where it is rendered: it is a command, which may have one."""


def unfit_text(value: object, path: str = "") -> str:
    """Return which setting holds a text that no rendered file can hold, and why; "" when none does.

    A line feed would begin a line of a unit. Half a surrogate pair cannot be written. Prometheus and Alertmanager read {{ as
    the beginning of a template.
    """
    if isinstance(value, str):
        found = _UNFIT.search(value) or (path != _ESCAPED_FOR_TEMPLATES and _TEMPLATE.search(value))
        if not found:
            return ""
        what = '"{{"' if found[0] == "{{" else f"the character U+{ord(found[0]):04X}"
        return f"{path}: expected text without control characters and {{{{, got {what} at position {found.start()}"
    if isinstance(value, msgspec.Struct):
        parts = ((f"{path}.{name}".lstrip("."), getattr(value, name)) for name in value.__struct_fields__)
    elif isinstance(value, list):
        parts = ((f"{path}[{at}]", one) for at, one in enumerate(value))
    else:
        return ""
    return next(filter(None, (unfit_text(one, where) for where, one in parts)), "")
