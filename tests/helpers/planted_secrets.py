"""Secrets, and lines of a log as programs write them with a secret in each."""

from __future__ import annotations

import json
import random
import string

ALPHABETS = {
    "hexadecimal": "0123456789abcdef",
    "letters": string.ascii_letters,
    "url-safe": string.ascii_letters + string.digits + "-_",
    "base64": string.ascii_letters + string.digits + "+/",
    "signs": string.ascii_letters + string.digits + "!#%()*.:;=@^~",
}


class Plant:
    """Makes secrets and remembers them."""

    def __init__(self, alphabet: str) -> None:
        self._random = random.Random(alphabet)
        self._alphabet = alphabet
        self.secrets: list[str] = []

    def __call__(self, alphabet: str = "", length: int = 28) -> str:
        chosen = alphabet or self._alphabet
        # Begins and ends as a token does, so that it is one word in a line of a log.
        inner = "".join(self._random.choice(chosen) for _ in range(length))
        secret = f"{self._random.choice(string.ascii_letters)}{inner}{self._random.choice(string.digits)}"
        self.secrets.append(secret)
        return secret

    def words(self, text: str) -> str:
        """Plant a whole sentence."""
        self.secrets.append(text)
        return text


SAFE = "url-safe"


def shapes(plant: Plant) -> list[str]:
    """Lines of a model server's log as programs write them, each with a secret where that program puts one."""
    safe = ALPHABETS[SAFE]
    awkward = "aB3)'/x"
    return [
        f'10.0.0.1:5 - "GET /v1/resume/{plant(safe)} HTTP/1.1" 206 Partial Content',
        f'10.0.0.1:5 - "DELETE /v1/resume/{plant(safe)} HTTP/1.1" 204 No Content',
        f'10.0.0.1:5 - "WebSocket /v1/realtime/{plant(safe)}?id={plant(safe)}" [accepted]',
        f"X-Omni-Resume: {plant(safe)}",
        f"x-omniwatch-stream: {plant(safe)}",
        f"X-Auth-Key: {plant(safe)}",
        f"headers x-amz-security-token={plant(safe)}",
        f"vllm serve m --api-key {plant(safe)} {plant(safe)} --port 8000",
        f"vllm serve m --api-key {plant(safe)} {plant(safe)} {plant(safe)}",
        f"https://me:{plant.words(f'{plant(safe)}{awkward}{plant(safe)}')}@db.example/x",
        f"amqp://u:{plant(safe)}/{plant(safe)}@mq.example:5672",
        f"curl -u admin:{plant(safe)} http://127.0.0.1/",
        f"curl --user admin:{plant(safe)} http://127.0.0.1/",
        f"passwords: {{bob: {plant(safe)}, eve: {plant(safe)}}}",
        f"credentials = {{'a': {{'b': '{plant()}'}}}}",
        f"encryption_key={plant(safe)} rotated",
        f"disk-key: {plant(safe)}",
        f"{{'user': '{plant.words('ann.bird@firm.example')}', 'n': 1}}",
        f'{{"user": "{plant.words("Ann Bird of Bern")}", "max_tokens": 64}}',
        f'{{"text":"{plant.words("call my doctor at noon")}"}}',
        f'{{"input": "{plant.words("meet me at the gate")}", "stream": true}}',
        json.dumps({"raw": json.dumps({"note": plant.words("the code is four one")})}),
        f"mail to {plant.words('bo.li+x@mail.example.org')} failed",
        f"client {plant.words('203.0.113.77')} gone",
        f"client {plant.words('2001:db8:77::9')} gone",
        f"{{'client': ('{plant.words('198.51.100.23')}', 4711)}}",
        f'{{"session": "{plant(safe)}", "status": "open"}}',
        f"Set-Cookie: sid={plant(safe)}; Path=/",
    ]
