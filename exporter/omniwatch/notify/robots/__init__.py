"""Build the requests to the robots of chat groups, and read their answers; each robot is one file."""

from __future__ import annotations

import abc
import base64
import enum
import functools
import hashlib
import hmac
import importlib
import json
import pkgutil
from bisect import bisect_right
from typing import ClassVar, NamedTuple

from omniwatch.notify.messages import Message
from omniwatch.settings import receivers

CUT = "\n\n…"
MAX_WORDS = 300
"""Characters of a robot's answer that are kept."""


class Verdict(enum.Enum):
    """What became of an attempt."""

    DELIVERED = "delivered"
    LATER = "later"
    REFUSED = "refused"


class Request(NamedTuple):
    """A POST of JSON."""

    url: str
    body: bytes


class ChatRobot(abc.ABC):
    """One robot as the settings have it. Each module here has a class `Robot` that implements its chat system."""

    max_bytes: ClassVar[int]
    """Largest `size` of a message's text, people called included."""
    too_fast: ClassVar[tuple[int, ...]]
    """Codes of answers that ask to come back later: too many messages, system busy."""
    at: ClassVar[str]
    """How the text calls a person, whose name or number is put at {}."""

    def __init__(self, settings: receivers.Robot) -> None:
        self.settings = settings

    @staticmethod
    @abc.abstractmethod
    def escape(text: str) -> str:
        """Write one line of text so that the robot shows it as it is: no link, no mention, no format."""

    @abc.abstractmethod
    def request(self, url: str, secret: str, message: Message, now: float) -> Request:
        """Write a message; `now` is in seconds since the epoch, an empty secret leaves it unsigned."""

    def is_out_of_time(self, code: object, words: str) -> bool:
        """Whether a code says that the signature's time is wrong, as every one is before the device's clock is set."""
        return False

    def verdict(self, status: int, body: bytes) -> tuple[Verdict, str]:
        """Say what an answer means, and why when the message was not taken. Errors, too, come with status 200."""
        if status == 429 or status >= 500:
            return Verdict.LATER, f"HTTP {status}"
        if 300 <= status < 400:
            return Verdict.REFUSED, f"HTTP {status}: sent elsewhere; the robot's address is not right"
        if status != 200:
            return Verdict.REFUSED, f"HTTP {status}"
        try:
            answer = json.loads(body)
            code = answer["errcode"] if "errcode" in answer else answer.get("code", answer.get("StatusCode"))
        except (ValueError, TypeError, AttributeError, RecursionError):
            code = None
        if code is None:
            return Verdict.LATER, "the answer is not what a robot says"
        if code == 0:
            return Verdict.DELIVERED, ""
        words = f"{code}: {answer.get('errmsg') or answer.get('msg') or answer.get('StatusMessage') or ''}"
        later = code in self.too_fast or self.is_out_of_time(code, words)
        return (Verdict.LATER if later else Verdict.REFUSED), words[:MAX_WORDS]

    def size(self, text: str) -> int:
        """Return the bytes of a text, by default as they stand in the request: JSON writes `"` and a backslash by two."""
        return len(as_json(text)) - len(as_json(""))

    def fits(self, message: Message) -> bool:
        """Whether the robot takes a message's text whole."""
        return self.size(f"{self.text(message)}{self._ats(message)}") <= self.max_bytes

    def text(self, message: Message) -> str:
        """Return a message's text, by default under its title."""
        return f"### {self.escape(message.title)}\n\n{message.text}"

    def cut(self, message: Message) -> str:
        """Return a message's text with the people it calls at its end, no longer than the robot takes."""
        text, ats = self.text(message), self._ats(message)
        if self.fits(message):
            return text + ats
        room = self.max_bytes - self.size(CUT + ats)
        kept = bisect_right(range(1, len(text) + 1), room, key=lambda at: self.size(text[:at]))
        return text[:kept] + CUT + ats

    def called(self, message: Message) -> list[str]:
        """Return the people that a message calls: those of the settings, for the first message of a page that fires."""
        called = message.firing and message.first and message.severity == "page"
        return self.settings.mention if called else []

    def _ats(self, message: Message) -> str:
        return "".join(self.at.format(person) for person in self.called(message))


@functools.cache
def discover() -> dict[str, type[ChatRobot]]:
    """Return the `Robot` of every module here, by the module's name: the `kind` of the settings."""
    modules = {
        m.name: importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)
    }
    return {name: module.Robot for name, module in modules.items()}


def of(settings: receivers.Robot) -> ChatRobot:
    """Return the robot that the settings describe."""
    return discover()[settings.kind](settings)


def signature(key: str, text: str) -> str:
    """Return HMAC-SHA256 in Base64."""
    return base64.b64encode(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()).decode()


def as_json(value: object) -> bytes:
    """Return the body of a request."""
    return json.dumps(value, ensure_ascii=False).encode()
