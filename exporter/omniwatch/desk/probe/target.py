"""Parse the server's address and the protocol that it names."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

PATHS = {"chat": "/v1/chat/completions", "video": "/v1/video/chat/stream", "realtime": "/v1/realtime"}
SCHEMES = {"http": "chat", "https": "chat", "ws": "video", "wss": "video"}


@dataclass(frozen=True)
class Target:
    """Where to ask. `kind` is one of PATHS; `prefix` is what stands before the server's own paths."""

    kind: str
    secure: bool
    host: str
    port: int
    prefix: str = ""

    @property
    def authority(self) -> str:
        """Host and port as a URL has them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def base(self) -> str:
        """The address before the server's own paths, for requests."""
        return f"{'https' if self.secure else 'http'}://{self.authority}{self.prefix}"

    @property
    def url(self) -> str:
        """The address that is asked."""
        scheme = {"chat": "http", "video": "ws", "realtime": "ws"}[self.kind] + ("s" if self.secure else "")
        return f"{scheme}://{self.authority}{self.prefix}{PATHS[self.kind]}"


def parse(url: str) -> Target:
    """Read http(s)://HOST[:PORT] for chat or ws(s)://HOST[:PORT] for video, the usual path given or not, or a realtime session's URL.

    Raises ValueError with one line.
    """
    expected = "expected http://HOST:PORT for chat or ws://HOST:PORT for video"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f'{expected}, got "{url}": {error}') from error
    kind = SCHEMES.get(parts.scheme)
    if kind is None or not parts.hostname:
        raise ValueError(f'{expected}, got "{url}"')
    path = parts.path.rstrip("/")
    if kind == "video" and path.endswith(PATHS["realtime"]):
        kind = "realtime"
    prefix = path.removesuffix(PATHS[kind])
    if parts.query or parts.fragment or parts.username or (path == prefix and path.count("/v1/")):
        raise ValueError(f'{expected}, with the path {PATHS[kind]} or none, got "{url}"')
    secure = parts.scheme in ("https", "wss")
    return Target(kind, secure, parts.hostname, port or (443 if secure else 80), prefix)
