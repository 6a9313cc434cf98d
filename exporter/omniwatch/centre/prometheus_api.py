"""Ask the query API that Prometheus, VictoriaMetrics and Mimir share. Each command wraps the error in its own words."""

from __future__ import annotations

import ssl
import urllib.parse
from collections.abc import Mapping
from typing import Literal

import msgspec

from omniwatch.system import http

MAX_ANSWER_BYTES = 256 * 2**20


class ApiError(Exception):
    """A query without an answer. The message leaves the address out. `code` is the HTTP status, where there is one."""

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
    context: ssl.SSLContext | None = None,
) -> Data:
    """Send a query and return its answer. Raises ApiError.

    `fields` are the query's parameters, `context` has the certificates to trust.
    """
    form = urllib.parse.urlencode(fields).encode()
    try:
        with http.ask(
            f"{url.rstrip('/')}/api/v1/{name}",
            timeout_s=timeout_s,
            body=form,
            headers={"Content-Type": "application/x-www-form-urlencoded", **(headers or {})},
            context=context,
        ) as reply:
            if not reply.ok:
                raise ApiError(_words(reply) or reply.reason, reply.status)
            body = reply.read(MAX_ANSWER_BYTES)
    except http.HttpError as error:
        raise ApiError(str(error)) from error
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ApiError("this does not answer as Prometheus does") from error
    if answer.status != "success" or answer.data is None:
        raise ApiError(" ".join(answer.error.split()) or "no answer")
    return answer.data


def _words(refusal: http.Answer) -> str:
    """Return what the body of a refusal says, on one line; "" where it does not arrive whole."""
    try:
        body = refusal.read(2**16, cut=True)
    except http.HttpError:
        return ""
    try:
        text = msgspec.json.decode(body, type=_Answer).error
    except (msgspec.DecodeError, RecursionError):
        text = body.decode("utf-8", "replace")
    return " ".join(text.split())[:300]
