"""Events of a realtime session, made up by Hypothesis from the `openai` package's own types."""

from __future__ import annotations

import base64
import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st
from openai.types.realtime import RealtimeClientEvent, RealtimeServerEvent
from pydantic import BaseModel

Event = dict[str, Any]
RESPONSES = ("r1", "r2", "r3")
ITEMS = ("i1", "i2", "i3")
REQUESTS = ("ask1", "ask2")


def of_union(union: Any) -> list[type[BaseModel]]:
    """Return the types of events that a union of them has."""
    return list(get_args(get_args(union)[0]))


SERVER = of_union(RealtimeServerEvent)
CLIENT = of_union(RealtimeClientEvent)


def type_of(model: type[BaseModel]) -> str:
    """Return the wire's name of a type of event."""
    name: str = get_args(model.model_fields["type"].annotation)[0]
    return name


def _base64(sizes: st.SearchStrategy[int]) -> st.SearchStrategy[str]:
    return sizes.map(lambda size: base64.b64encode(b"\1" * size).decode())


SPEECH = _base64(st.sampled_from([0, 2, 240, 480]))
TEXTS = st.sampled_from(["", "word", "\x7f5", "é" * 20])
_pools: dict[str, st.SearchStrategy[Any]] = {
    "response_id": st.sampled_from(RESPONSES),
    "item_id": st.sampled_from(ITEMS),
    "event_id": st.sampled_from(REQUESTS),
    "delta": SPEECH,
    "audio": SPEECH,
    "audio_end_ms": st.integers(0, 120),
}
"""Fields by which events belong together: few values, so that they meet."""
_ids = {"RealtimeResponse": RESPONSES, "RealtimeConversationItem": ITEMS}


def _values(annotation: Any, name: str, owner: str) -> st.SearchStrategy[Any]:
    if annotation in (str, Any) and name in _pools:
        return _pools[name]
    if annotation is str and name == "id":
        pool = next((ids for prefix, ids in _ids.items() if owner.startswith(prefix)), ("x",))
        return st.sampled_from(pool)
    if annotation is int and name in _pools:
        return _pools[name]
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _values(inner[0], name, owner)
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (Union, types.UnionType):
        return st.one_of(*(_values(one, name, owner) for one in inner))
    if origin in (list, dict):
        if origin is dict:
            return st.dictionaries(TEXTS, TEXTS, max_size=1)
        return st.lists(_values(inner[0], name, owner), max_size=2)
    return _plain(annotation)


def _plain(annotation: Any) -> st.SearchStrategy[Any]:
    if annotation is type(None):
        return st.none()
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return st.deferred(lambda: made(annotation))
    return {
        str: TEXTS,
        int: st.integers(0, 2**31),
        float: st.floats(0, 1e6),
        bool: st.booleans(),
        object: st.none(),
    }[annotation]


_made: dict[type[BaseModel], st.SearchStrategy[Event]] = {}


def made(model: type[BaseModel], **stated: st.SearchStrategy[Any]) -> st.SearchStrategy[Event]:
    """Any value of a type, as JSON has it; `stated`: fields that are always there, and what is in them."""
    if model in _made and not stated:
        return _made[model]
    fields = {
        name: _values(field.annotation, name, model.__name__)
        for name, field in model.model_fields.items()
        if name not in stated
    }
    required = {name: value for name, value in fields.items() if model.model_fields[name].is_required()}
    optional = {name: value for name, value in fields.items() if name not in required}
    found = st.fixed_dictionaries({**required, **stated}, optional=optional)
    if not stated:
        _made[model] = found
    return found


_by_type = {type_of(model): model for model in (*SERVER, *CLIENT)}


def event(kind: str, **stated: Any) -> st.SearchStrategy[Event]:
    """An event of one type, with some fields as given."""
    fixed = {name: st.just(value) for name, value in stated.items()}
    return made(_by_type[kind], **fixed)


def _dialogue(draw: Callable[..., Any], response: str, item: str) -> list[Event]:
    """One answer, from its question to its end, as servers give it."""
    asks = draw(
        st.sampled_from(
            [
                ["response.create"],
                ["input_audio_buffer.speech_stopped", "input_audio_buffer.committed"],
                ["input_audio_buffer.commit", "input_audio_buffer.committed"],
                [],
            ]
        )
    )
    events = [draw(event(kind)) for kind in asks]
    events.append(draw(event("response.created", response=draw(_response(response, "in_progress")))))
    added = {"id": item, "type": "message", "role": "assistant", "content": []}
    events.append(draw(event("response.output_item.added", response_id=response, item=added)))
    for _ in range(draw(st.integers(0, 3))):
        events.append(draw(event("response.output_audio.delta", response_id=response, item_id=item)))
    if draw(st.booleans()):
        events.append(draw(st.sampled_from(_INTERRUPTIONS).flatmap(event)))
    events.append(draw(event("response.done", response=draw(_response(response)))))
    return events


_INTERRUPTIONS = [
    "input_audio_buffer.speech_started",
    "response.cancel",
    "conversation.item.truncate",
    "output_audio_buffer.clear",
    "output_audio_buffer.cleared",
]


def _response(response: str, status: str | None = None) -> st.SearchStrategy[Event]:
    stated = {"id": st.just(response), **({"status": st.just(status)} if status else {})}
    return made(_by_type["response.done"].model_fields["response"].annotation, **stated)


ODD_FIELDS = st.dictionaries(
    st.sampled_from(["extra", "usage", "output_index"]),
    st.sampled_from([None, 5, "x", [], {"type": 5}, "\x7f5~"]),
    max_size=2,
)
UNKNOWN = st.sampled_from(
    [{"type": "vendor.ping"}, {"type": ""}, {"type": "response.video.delta", "delta": "AAAA"}]
)


@st.composite
def sessions(draw: Callable[..., Any]) -> list[Event]:
    """What is said in one session, by both sides, in any order; the server greets early."""
    events: list[Event] = []
    single = st.sampled_from([*_by_type]).flatmap(event)
    for _ in range(draw(st.integers(1, 4))):
        if draw(st.booleans()):
            response = draw(st.sampled_from(RESPONSES))
            events += _dialogue(draw, response, draw(st.sampled_from(ITEMS)))
        else:
            events += draw(st.lists(single | UNKNOWN, max_size=6))
    events.insert(draw(st.integers(0, min(3, len(events)))), draw(event("session.created")))
    if draw(st.booleans()):
        events = draw(st.permutations(events))
    return [{**draw(ODD_FIELDS), **one} for one in events]
