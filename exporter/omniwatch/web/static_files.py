"""Serve the files of the folder static/: each has an ETag, and is asked for again only where it changed."""

from __future__ import annotations

import gzip
import hashlib
from importlib import resources
from typing import Any, NamedTuple

from omniwatch.web.response import Response

POLICY = (
    "Content-Security-Policy",
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
)
"""What a page of ours may load: from here, and nothing inline."""
KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
"""Files of other kinds, such as licences, are plain text."""


class StaticFile(NamedTuple):
    """A file as it is served."""

    content: bytes
    packed: bytes
    etag: str
    kind: str

    def answer(self, environ: dict[str, Any], packed: bool) -> Response:
        """Return the file, compressed where `packed`; nothing of it where the client has it."""
        headers = [("ETag", self.etag), ("Cache-Control", "no-cache"), ("Vary", "Accept-Encoding"), POLICY]
        known = environ.get("HTTP_IF_NONE_MATCH", "")
        if self.etag in (tag.strip().removeprefix("W/") for tag in known.split(",")):
            return Response("304 Not Modified", b"", "", headers)
        if packed:
            return Response("200 OK", self.packed, self.kind, [*headers, ("Content-Encoding", "gzip")])
        return Response("200 OK", self.content, self.kind, headers)


def load() -> dict[str, StaticFile]:
    """Return the files by their paths."""
    found = {}
    for file in resources.files("omniwatch.web").joinpath("static").iterdir():
        content = file.read_bytes()
        kind = KINDS.get("." + file.name.rpartition(".")[2], "text/plain; charset=utf-8")
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        found[f"/static/{file.name}"] = StaticFile(content, gzip.compress(content, mtime=0), etag, kind)
    return found
