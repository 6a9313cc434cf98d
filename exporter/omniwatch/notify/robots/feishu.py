"""Feishu's robot: https://open.feishu.cn/document/client-docs/bot-v3/add-custom-bot (signature, limits)."""

from __future__ import annotations

import re

from omniwatch.notify.messages import Message
from omniwatch.notify.robots import ChatRobot, Request, as_json, signature

OUT_OF_TIME = 19021
SIGNS = re.compile(r"[\\&<>*_~`\[\]]|:(?=\w+:)")
"""What has a meaning in a card's Markdown; a word between colons is a picture (:OK:).
https://open.feishu.cn/document/feishu-cards/card-components/content-components/rich-text (text as HTML's entities)."""


class Robot(ChatRobot):
    """Feishu's robot, which takes 20 kB of body. The title is the head of a card."""

    max_bytes = 18_000
    too_fast = (9499, 11232, 11233)
    at = " <at id={}></at>"

    @staticmethod
    def escape(text: str) -> str:
        """Write one line of text with HTML's entities for what has a meaning in a card's Markdown."""
        return SIGNS.sub(lambda sign: f"&#{ord(sign[0])};", text)

    def request(self, url: str, secret: str, message: Message, now: float) -> Request:
        """Write a message; time in s and signature are in the body."""
        stamp = str(int(now))
        signed = {"timestamp": stamp, "sign": sign(secret, stamp)} if secret else {}
        colour = "green" if not message.firing else "red" if message.severity == "page" else "orange"
        card = {
            "msg_type": "interactive",
            "card": {
                "header": {"title": {"tag": "plain_text", "content": message.title}, "template": colour},
                "elements": [{"tag": "markdown", "content": self.cut(message)}],
            },
        }
        return Request(url, as_json(signed | card))

    def text(self, message: Message) -> str:
        """Return a message's text alone."""
        return message.text

    def is_out_of_time(self, code: object, words: str) -> bool:
        """Whether the code stands for the signature's time."""
        return code == OUT_OF_TIME


def sign(secret: str, stamp_s: str) -> str:
    """Return the signature of a time in seconds: the key holds the secret, the text is empty."""
    return signature(f"{stamp_s}\n{secret}", "")
