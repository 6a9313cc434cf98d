"""Build and sign the requests to the robots of DingTalk, Feishu and WeCom, and read their answers.

Signatures: DingTalk https://open.dingtalk.com/document/robots/customize-robot-security-settings (timestamp in ms and
sign in the query), Feishu https://open.feishu.cn/document/client-docs/bot-v3/add-custom-bot (timestamp in s and sign in
the body). Both are HMAC-SHA256 in Base64 of timestamp, line feed and secret; DingTalk's key is the secret and its text
that string, Feishu's key is that string and its text is empty.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import hmac
import json
import urllib.parse
from typing import Any, NamedTuple

from omniwatch.notify.messages import Message
from omniwatch.settings.receivers import Robot

MAX_BYTES = {"dingtalk": 18_000, "feishu": 18_000, "wecom": 4000}
"""Of text: DingTalk and Feishu take 20 kB of body, WeCom 4096 bytes of text."""
TOO_FAST = {"dingtalk": (130101, 660026, -1), "feishu": (9499, 11232, 11233), "wecom": (45009, -1)}
"""Answers that ask to come back later: too many messages, system busy."""
OUT_OF_TIME = {"dingtalk": 310000, "feishu": 19021, "wecom": None}
"""The signature or its time is wrong: so is every one before the device's clock is set."""
OFF_TOPIC = "keyword"
"""In DingTalk's words when that code means that a message has none of the words the group asks for."""
CUT = "\n\n…"


class Verdict(enum.Enum):
    """What became of an attempt."""

    DELIVERED = "delivered"
    LATER = "later"
    REFUSED = "refused"


class Request(NamedTuple):
    """A POST of JSON."""

    url: str
    body: bytes


def request(robot: Robot, url: str, secret: str, message: Message, now: float) -> Request:
    """Write a message for a robot; `now` is in seconds since the epoch, an empty secret leaves it unsigned."""
    if robot.kind == "dingtalk":
        stamp = str(round(now * 1000))
        if secret:
            query = {"timestamp": stamp, "sign": sign_dingtalk(secret, stamp)}
            url += ("&" if "?" in url else "?") + urllib.parse.urlencode(query)
        return Request(url, _json(_dingtalk(robot, message)))
    if robot.kind == "feishu":
        stamp = str(int(now))
        signed = {"timestamp": stamp, "sign": sign_feishu(secret, stamp)} if secret else {}
        return Request(url, _json(signed | _feishu(robot, message)))
    return Request(url, _json(_wecom(robot, message)))


def sign_dingtalk(secret: str, stamp_ms: str) -> str:
    """Return the signature of a time in milliseconds, not yet quoted for a query."""
    return _hmac(secret, f"{stamp_ms}\n{secret}")


def sign_feishu(secret: str, stamp_s: str) -> str:
    """Return the signature of a time in seconds."""
    return _hmac(f"{stamp_s}\n{secret}", "")


def verdict(kind: str, status: int, body: bytes) -> tuple[Verdict, str]:
    """Say what an answer means, and why when the message was not taken. All three answer 200 to errors, too."""
    if status == 429 or status >= 500:
        return Verdict.LATER, f"HTTP {status}"
    if 300 <= status < 400:
        return Verdict.REFUSED, f"HTTP {status}: sent elsewhere; the robot's address is not right"
    if status != 200:
        return Verdict.REFUSED, f"HTTP {status}"
    try:
        answer = json.loads(body)
        code = answer["errcode"] if "errcode" in answer else answer.get("code", answer.get("StatusCode"))
    except (ValueError, TypeError, AttributeError, KeyError):
        return Verdict.LATER, "the answer is not what a robot says"
    if code == 0:
        return Verdict.DELIVERED, ""
    words = f"{code}: {answer.get('errmsg') or answer.get('msg') or answer.get('StatusMessage') or ''}"
    later = code in TOO_FAST[kind] or (code == OUT_OF_TIME[kind] and OFF_TOPIC not in words)
    return (Verdict.LATER if later else Verdict.REFUSED), words


def fits(robot: Robot, message: Message) -> bool:
    """Whether a robot takes a message's text whole."""
    text = message.text if robot.kind == "feishu" else _titled(message)
    return len(f"{text}{_ats(robot, message)}".encode()) <= MAX_BYTES[robot.kind]


def _dingtalk(robot: Robot, message: Message) -> dict[str, Any]:
    return {
        "msgtype": "markdown",
        "markdown": {"title": message.title, "text": _cut(robot, message, _titled(message))},
        "at": {"atMobiles": _called(robot, message), "isAtAll": False},
    }


def _feishu(robot: Robot, message: Message) -> dict[str, Any]:
    colour = "green" if not message.firing else "red" if message.severity == "page" else "orange"
    return {
        "msg_type": "interactive",
        "card": {
            "header": {"title": {"tag": "plain_text", "content": message.title}, "template": colour},
            "elements": [{"tag": "markdown", "content": _cut(robot, message, message.text)}],
        },
    }


def _wecom(robot: Robot, message: Message) -> dict[str, Any]:
    return {"msgtype": "markdown", "markdown": {"content": _cut(robot, message, _titled(message))}}


def _called(robot: Robot, message: Message) -> list[str]:
    called = message.firing and message.first and message.severity == "page"
    return robot.mention if called else []


def _ats(robot: Robot, message: Message) -> str:
    forms = {"dingtalk": " @{}", "feishu": " <at id={}></at>", "wecom": " <@{}>"}
    return "".join(forms[robot.kind].format(person) for person in _called(robot, message))


def _titled(message: Message) -> str:
    return f"### {message.title}\n\n{message.text}"


def _cut(robot: Robot, message: Message, text: str) -> str:
    """Return a message's text with the people it calls at its end, no longer than the robot takes."""
    ats = _ats(robot, message)
    raw, size = text.encode(), MAX_BYTES[robot.kind] - len(ats.encode())
    kept = text if len(raw) <= size else raw[: size - len(CUT.encode())].decode(errors="ignore") + CUT
    return kept + ats


def _hmac(key: str, text: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()).decode()


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
