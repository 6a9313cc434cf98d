"""Ask the query API that Prometheus, VictoriaMetrics and Mimir share. Each command wraps the error in its own words."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Literal

import msgspec

MAX_ANSWER_BYTES = 256 * 2**20


class ApiError(Exception):
    """A query without an answer: `str` is one line without the address, `code` the HTTP status where there is one."""

    def __init__(self, words: str, code: int | None = None) -> None:
        super().__init__(words)
        self.code = code


class Data(msgspec.Struct, rename="camel"):
    """The `data` of an answer; what `result` holds depends on its type."""

    result_type: str
    result: msgspec.Raw


class _Answer(msgspec.Struct):
    status: str
    data: Data | None = None
    error: str = ""


def ask(
    url: str,
    name: Literal["query", "query_range"],
    fields: Mapping[str, str | float],
    *,
    timeout_s: float,
    headers: Mapping[str, str] | None = None,
    opener: urllib.request.OpenerDirector | None = None,
) -> Data:
    """Send a query and return its answer. Raises ApiError.

    `fields` are the query's parameters, `opener` says how redirections and certificates are dealt with.
    """
    form = urllib.parse.urlencode(fields).encode()
    try:
        request = urllib.request.Request(f"{url.rstrip('/')}/api/v1/{name}", form, dict(headers or {}))
        with (opener or urllib.request.build_opener()).open(request, timeout=timeout_s) as reply:
            body: bytes = reply.read(MAX_ANSWER_BYTES)
    except urllib.error.HTTPError as error:
        raise ApiError(_words(error) or str(error.reason), error.code) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = getattr(error, "reason", error)
        raise ApiError(str(getattr(why, "strerror", None) or why)) from error
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ApiError("this does not answer as Prometheus does") from error
    if answer.status != "success" or answer.data is None:
        raise ApiError(" ".join(answer.error.split()) or "no answer")
    return answer.data


def _words(refusal: urllib.error.HTTPError) -> str:
    """Return what the body of a refusal says, on one line; "" where it does not arrive whole."""
    try:
        body = refusal.read(2**16)
    except (OSError, http.client.HTTPException, ValueError):
        return ""
    try:
        text = msgspec.json.decode(body, type=_Answer).error
    except (msgspec.DecodeError, RecursionError):
        text = body.decode("utf-8", "replace")
    return " ".join(text.split())[:300]
