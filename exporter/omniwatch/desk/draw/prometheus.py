"""Query Prometheus over its HTTP API."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from omniwatch.centre import prometheus_api
from omniwatch.desk.draw.queries import DrawError, Query

TIMEOUT_S = 60.0


class Series(NamedTuple):
    """A series of an answer: values by time, in seconds since the epoch, the oldest first."""

    labels: dict[str, str]
    points: list[tuple[float, float]]


def ask(url: str, question: Query) -> list[Series]:
    """Return a question's series in the order of their labels. Raises DrawError."""
    window = question.window
    name: Literal["query", "query_range"] = "query_range" if question.step_s else "query"
    fields: dict[str, str | float] = {"query": question.expression}
    if question.step_s:
        fields |= {"start": window.start, "end": window.end, "step": question.step_s}
    else:
        fields["time"] = window.end
    try:
        data = prometheus_api.ask(url, name, fields, timeout_s=TIMEOUT_S)
    except prometheus_api.ApiError as error:
        asked = f": {question.expression}" if error.code else ""
        raise DrawError(f"{url.rstrip('/')}/api/v1/{name}: {error}{asked}") from error
    found = series({"resultType": data.result_type, "result": msgspec.json.decode(data.result)})
    return sorted(found, key=lambda one: sorted(one.labels.items()))


def series(data: dict[str, Any]) -> list[Series]:
    """Read the `data` of an answer: a matrix, a vector or a scalar."""
    result = data["result"]
    if data["resultType"] == "scalar":
        return [Series({}, [(float(result[0]), float(result[1]))])]
    return [
        Series(one["metric"], [(float(t), float(value)) for t, value in one.get("values") or [one["value"]]])
        for one in result
    ]
