"""DingTalk's robot: https://open.dingtalk.com/document/robots/customize-robot-security-settings (signature, limits)."""

from __future__ import annotations

import re
import urllib.parse

from omniwatch.notify.messages import Message
from omniwatch.notify.robots import ChatRobot, Request, as_json, signature

OUT_OF_TIME = 310000
OFF_TOPIC = "keyword"
"""In DingTalk's words when that code means that a message has none of the words the group asks for."""
SIGNS = re.compile(r"[\\`*_~]|\](?=[\[(])")
"""What begins or ends a format in Markdown; a backslash takes that away. A number behind an @ calls only those in `atMobiles`."""
HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
"""HTML is read before Markdown, in code too: a telephone shows nothing of a message with a tag. An entity is text everywhere
(https://github.com/eryajf/chatgpt-dingtalk/pull/213)."""


class Robot(ChatRobot):
    """DingTalk's robot, which takes 20 kB of body."""

    max_bytes = 18_000
    too_fast = (130101, 660026, -1)
    at = " @{}"

    @staticmethod
    def escape(text: str) -> str:
        """Write one line of text so that Markdown and HTML have it as text."""
        return SIGNS.sub(r"\\\g<0>", text).translate(HTML)

    def request(self, url: str, secret: str, message: Message, now: float) -> Request:
        """Write a message; time in ms and signature are in the query."""
        stamp = str(round(now * 1000))
        if secret:
            query = {"timestamp": stamp, "sign": sign(secret, stamp)}
            url += ("&" if "?" in url else "?") + urllib.parse.urlencode(query)
        body = {
            "msgtype": "markdown",
            "markdown": {"title": message.title, "text": self.cut(message)},
            "at": {"atMobiles": self.called(message), "isAtAll": False},
        }
        return Request(url, as_json(body))

    def is_out_of_time(self, code: object, words: str) -> bool:
        """Whether the code stands for the signature's time: it has several meanings."""
        return code == OUT_OF_TIME and OFF_TOPIC not in words


def sign(secret: str, stamp_ms: str) -> str:
    """Return the signature of a time in milliseconds, not yet quoted for a query."""
    return signature(secret, f"{stamp_ms}\n{secret}")
