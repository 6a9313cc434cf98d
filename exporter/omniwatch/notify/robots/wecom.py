"""WeCom's robot: https://developer.work.weixin.qq.com/document/path/91770 (message types, limits)."""

from __future__ import annotations

from omniwatch.notify.messages import Message
from omniwatch.notify.robots import ChatRobot, Request, as_json


class Robot(ChatRobot):
    """WeCom's robot, which takes 4096 bytes of text. It checks only the key in its address."""

    max_bytes = 4000
    too_fast = (45009, -1)
    at = " <@{}>"

    def request(self, url: str, secret: str, message: Message, now: float) -> Request:
        """Write a message; there is no signature."""
        return Request(url, as_json({"msgtype": "markdown", "markdown": {"content": self.cut(message)}}))
