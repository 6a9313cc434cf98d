"""Questions asked of a Prometheus over its query API."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NamedTuple

from omniwatch.draw.questions import DrawError, Question

TIMEOUT_S = 60.0


class Series(NamedTuple):
    """A series of an answer: values by time, in seconds since the epoch, the oldest first."""

    labels: dict[str, str]
    points: list[tuple[float, float]]


def ask(url: str, question: Question) -> list[Series]:
    """Return a question's series in the order of their labels. Raises DrawError."""
    window = question.window
    fields: dict[str, str | float] = {"query": question.expression}
    if question.step_s:
        name = "query_range"
        fields |= {"start": window.start, "end": window.end, "step": question.step_s}
    else:
        name = "query"
        fields["time"] = window.end
    return sorted(
        series(_post(f"{url.rstrip('/')}/api/v1/{name}", fields)), key=lambda one: sorted(one.labels.items())
    )


def series(data: dict[str, Any]) -> list[Series]:
    """Read the `data` of an answer: a matrix, a vector or a scalar."""
    result = data["result"]
    if data["resultType"] == "scalar":
        return [Series({}, [(float(result[0]), float(result[1]))])]
    return [
        Series(one["metric"], [(float(t), float(value)) for t, value in one.get("values") or [one["value"]]])
        for one in result
    ]


def _post(address: str, fields: dict[str, str | float]) -> dict[str, Any]:
    try:
        request = urllib.request.Request(address, urllib.parse.urlencode(fields).encode())
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            body = json.load(answer)
    except urllib.error.HTTPError as error:
        raise DrawError(f"{address}: {_reason(error)}: {fields['query']}") from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise DrawError(f"{address}: {getattr(error, 'reason', None) or error}") from error
    if not isinstance(body, dict) or body.get("status") != "success":
        raise DrawError(f"{address}: this is no answer of a Prometheus")
    data: dict[str, Any] = body["data"]
    return data


def _reason(error: urllib.error.HTTPError) -> str:
    """Say why it was refused: Prometheus' own words where the answer is Prometheus'."""
    try:
        return " ".join(str(json.load(error)["error"]).split())
    except (ValueError, KeyError, TypeError, OSError):
        return f"HTTP {error.code} {error.reason}"
