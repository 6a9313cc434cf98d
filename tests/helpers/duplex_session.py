"""Messages of duplex sessions: `WS /v1/realtime?duplex=1` and `/v1/duplex`."""

from __future__ import annotations

from typing import Any

from helpers.scripted_tap import Step, answers, pcm16, says

SESSION = "duplex-3f2a9c0e7b1d4a55"


def commit(t: float, **fields: Any) -> Step:
    return says(t, type="input_audio_buffer.commit", **fields)


def created(t: float, session: str = SESSION) -> Step:
    return answers(
        t, type="session.created", event_id="e0", session={"id": session, "model": "m"}, resume_token="t" * 43
    )


def duplex(
    t: float, total_ms: float, ms: float, response: str = "r1", encoding: str = "pcm16", **fields: Any
) -> Step:
    return answers(
        t,
        type="response.output_audio.delta",
        event_id=f"e{t}",
        response_id=response,
        item_id=f"item_{response}",
        delta=pcm16(ms),
        format=encoding,
        sample_rate_hz=24_000,
        metadata={"session_id": SESSION, "audio_duration_ms": total_ms, "playback": {"sent_ms": total_ms}},
        **fields,
    )


def done(t: float, response: str = "r1", status: str = "completed") -> list[Step]:
    return [
        answers(t, type="response.output_audio.done", response_id=response),
        answers(t, type="response.done", response_id=response, response={"id": response, "status": status}),
    ]


def resume(t: float, seq: int = 17, session: str = SESSION) -> Step:
    return says(
        t,
        type="session.resume",
        session_id=session,
        resume_token="t" * 43,
        last_received_server_event_seq=seq,
    )


def resumed(t: float, session: str = SESSION) -> Step:
    return answers(
        t, type="session.resumed", session_id=session, session={"id": session}, resume_token="u" * 43
    )


def hit(*sessions: str) -> dict[str, Any]:
    """The server took up what it names first; some versions of it name the session twice."""
    named = dict(zip(("session_id", "id"), sessions, strict=False))
    return {"type": "session.resumed", "session": {"id": sessions[0]} if sessions else {}, **named}


def keyed(key: str | None) -> dict[str, Any]:
    return {"headers": [(b"authorization", key.encode())]} if key else {}
