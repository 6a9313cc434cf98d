"""WeCom's robot: https://developer.work.weixin.qq.com/document/path/91770 (message types, limits)."""

from __future__ import annotations

from omniwatch.notify.messages import LINK, Message
from omniwatch.notify.robots import ChatRobot, Request, as_json

ALIKE = {ord(sign): chr(ord(sign) + 0xFEE0) for sign in "<>*`&\\"}
"""WeCom has no escape: these signs are written as their full-width forms, which mean nothing there. Entities are shown as they stand
(https://github.com/Tencent/openclaw-weixin/issues/245)."""


class Robot(ChatRobot):
    """WeCom's robot, which takes 4096 bytes of text. It checks only the key in its address."""

    max_bytes = 4000
    too_fast = (45009, -1)
    at = " <@{}>"

    @staticmethod
    def escape(text: str) -> str:
        """Write one line of text with signs that look like those with a meaning."""
        return LINK.sub("\N{FULLWIDTH RIGHT SQUARE BRACKET}", text.translate(ALIKE))

    def size(self, text: str) -> int:
        """Return the bytes of a text: the bound is on these."""
        return len(text.encode())

    def request(self, url: str, secret: str, message: Message, now: float) -> Request:
        """Write a message; there is no signature."""
        return Request(url, as_json({"msgtype": "markdown", "markdown": {"content": self.cut(message)}}))
