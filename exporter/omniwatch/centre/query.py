"""Instant queries to a Prometheus API: Prometheus' own, VictoriaMetrics', Mimir's."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import NamedTuple

import msgspec

from omniwatch.centre import prometheus_api
from omniwatch.system import http, user_file
from omniwatch.system.errors import UserError

TIMEOUT_S = 30.0
_TOKEN = re.compile(rb"[\x21-\x7e]+")


class QueryError(UserError):
    """The centre cannot be reached, refuses, or answers what it should not."""


class Sample(NamedTuple):
    """One series of an answer."""

    labels: dict[str, str]
    value: float


class _Series(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class Centre:
    """A Prometheus API at `url`, asked with a bearer token where there is one. Raises QueryError."""

    def __init__(
        self,
        url: str,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise QueryError(f'expected http://… or https://…, got "{url}"')
        try:
            http.Connection(url, http.Deadline(timeout_s))
        except http.HttpError as error:
            raise QueryError(f"{url}: {error}") from error
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._headers = {"Accept": "application/json"}
        if token_file is not None:
            self._headers["Authorization"] = f"Bearer {_token(token_file)}"
        try:
            if ca_file is not None:
                user_file.read(Path(ca_file))
            self._context = ssl.create_default_context(cafile=ca_file)
        except OSError as error:
            raise QueryError(f"{ca_file}: {error.strerror or error}") from error

    def instant(self, expression: str) -> list[Sample]:
        """Return what an expression is now. Raises QueryError."""
        # VictoriaMetrics would leave out what arrived in the last 30 s, were it not told nocache; others ignore it.
        fields = {"query": expression, "nocache": "1"}
        try:
            data = prometheus_api.ask(
                self._url,
                "query",
                fields,
                timeout_s=self._timeout_s,
                headers=self._headers,
                context=self._context,
            )
        except prometheus_api.ApiError as error:
            code = f"{error.code} " if error.code else ""
            hint = {401: " (is the token right?)", 404: " (is this the address of the API?)"}
            raise QueryError(f"{self._url}: {code}{error}{hint.get(error.code or 0, '')}") from error
        if data.result_type != "vector":
            raise QueryError(f"{self._url}: a {data.result_type} where a vector was expected")
        try:
            series = msgspec.json.decode(data.result, type=list[_Series])
            return [Sample(one.metric, float(one.value[1])) for one in series]
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise QueryError(f"{self._url}: this does not answer as Prometheus does") from error


def _token(path: Path) -> str:
    """Read a bearer token. Raises QueryError, which never has any of it."""
    try:
        found = user_file.read(path).strip()
    except OSError as error:
        raise QueryError(f"{path}: {error.strerror or error}") from error
    if not _TOKEN.fullmatch(found):
        raise QueryError(f"{path}: expected a token alone, on one line, of ASCII signs without space")
    return found.decode("ascii")
