"""Messages of `WS /v1/realtime` in the general dialect."""

from __future__ import annotations

from typing import Any

from helpers.scripted_tap import Step, answers, pcm16, says

SESSION = "sess_0123456789abcdefghij"


def speech(form: Any) -> dict[str, Any]:
    """The field that states the format of speech, today's or the older one."""
    return {"output_audio_format": form} if isinstance(form, str) else {"audio": {"output": {"format": form}}}


def created(t: float, **session: Any) -> Step:
    return _session(t, "session.created", session)


def updated(t: float, **session: Any) -> Step:
    return _session(t, "session.updated", session)


def _session(t: float, kind: str, session: dict[str, Any]) -> Step:
    stated = {"type": "realtime", "object": "realtime.session", "id": SESSION, **session}
    return answers(t, type=kind, event_id=f"event_{t}", session=stated)


def ask(t: float, **fields: Any) -> Step:
    return says(t, type="response.create", **fields)


def begin(t: float, response: str = "r1", **fields: Any) -> Step:
    stated = {
        "id": response,
        "object": "realtime.response",
        "status": "in_progress",
        "conversation_id": "conv_1",
        **fields,
    }
    return answers(t, type="response.created", event_id=f"event_{t}", response=stated)


def add_item(t: float, item: str, response: str = "r1", kind: str = "message") -> Step:
    return answers(
        t,
        type="response.output_item.added",
        event_id=f"event_{t}",
        response_id=response,
        output_index=0,
        item={"id": item, "object": "realtime.item", "type": kind, "status": "in_progress"},
    )


def delta(t: float, ms: float, response: str = "r1", item: str = "i1") -> Step:
    """Speech as 16-bit samples of 24 kHz, which are as many bytes in any format."""
    return answers(
        t,
        type="response.output_audio.delta",
        event_id=f"event_{t}",
        response_id=response,
        item_id=item,
        output_index=0,
        content_index=0,
        delta=pcm16(ms),
    )


def done(t: float, response: str = "r1", status: str = "completed", **fields: Any) -> Step:
    stated = {"id": response, "object": "realtime.response", "status": status, **fields}
    return answers(t, type="response.done", event_id=f"event_{t}", response=stated)
