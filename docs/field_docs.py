"""Read what a msgspec struct says of its fields: type, default, limits, and the docstring that follows each in the source."""

from __future__ import annotations

import ast
import inspect as python
import json
import textwrap
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from omniwatch.settings.kinds import PATTERNS

UNITS = {
    "_per_s": "a second",
    "_ms": "ms",
    "_s": "s",
    "_days": "days",
    "_hz": "Hz",
    "_bytes": "bytes",
    "_kib": "KiB",
    "_gb": "GB",
    "_share": "share, 0 to 1",
    "_bits": "bits",
}
"""The unit that the end of a name states."""
KINDS = {
    inspect.FloatType: "number",
    inspect.IntType: "whole number",
    inspect.StrType: "text",
    inspect.BoolType: "true or false",
    inspect.ListType: "list",
}


class Field(NamedTuple):
    """A field as the manual shows it."""

    name: str
    doc: str
    unit: str
    default: str
    limits: str
    kind: str
    is_required: bool
    struct: type[msgspec.Struct] | None
    """The struct of a group, or of a list's items."""
    is_list: bool


def fields(struct: type[msgspec.Struct]) -> list[Field]:
    """Describe every field of a struct, those that it inherits first."""
    docs = {name: doc for base in reversed(struct.__mro__) for name, doc in _docs(base).items()}
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return [_field(one, docs.get(one.name, "")) for one in info.fields]


@cache
def _docs(struct: type) -> dict[str, str]:
    if not issubclass(struct, msgspec.Struct) or struct is msgspec.Struct:
        return {}
    tree = ast.parse(textwrap.dedent(python.getsource(struct))).body[0]
    assert isinstance(tree, ast.ClassDef)
    return {
        field.target.id: " ".join(after.value.value.split())
        for field, after in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
        and isinstance(after.value.value, str)
    }


def _field(field: inspect.Field, doc: str) -> Field:
    kinds = [one for one in _union(field.type) if not isinstance(one, inspect.NoneType)]
    kind = kinds[0]
    item = kind.item_type if isinstance(kind, inspect.ListType) else kind
    struct = item.cls if isinstance(item, inspect.StructType) else None
    words = list(dict.fromkeys(_kind(one) for one in kinds))
    return Field(
        field.encode_name,
        doc,
        _unit(field.name),
        _default(field),
        "; ".join(filter(None, dict.fromkeys(_limits(one) for one in kinds))),
        " or ".join(words),
        field.required,
        struct,
        isinstance(kind, inspect.ListType),
    )


def _union(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def _kind(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.ListType):
        return f"list of {_kind(kind.item_type)}"
    if isinstance(kind, inspect.LiteralType):
        return "text"
    return KINDS.get(type(kind), "group")


def _unit(name: str) -> str:
    return next((unit for end, unit in UNITS.items() if name.endswith(end)), "")


def _default(field: inspect.Field) -> str:
    if field.required:
        return "required"
    value: Any = field.default
    if value is msgspec.NODEFAULT:
        value = field.default_factory()
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if value == "":
        return "empty"
    if isinstance(value, str):
        return f"`{value}`"
    return f"`{json.dumps(msgspec.to_builtins(value), ensure_ascii=False)}`"


def _number(value: float) -> str:
    if isinstance(value, int) and value >= 2**20 and (value & (value - 1) == 0 or (value + 1) & value == 0):
        return f"2^{value.bit_length() - 1}" if value & (value - 1) == 0 else f"2^{value.bit_length()} - 1"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _limits(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.LiteralType):
        return ", ".join(f"`{value}`" for value in kind.values)
    if isinstance(kind, inspect.ListType):
        inner = _limits(kind.item_type)
        least = f"at least {kind.min_length}" if kind.min_length else ""
        most = f"at most {kind.max_length}" if kind.max_length else ""
        return "; ".join(filter(None, (least, most, f"each {inner}" if inner else "")))
    signs = (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤"))
    bounds = [
        f"{sign} {_number(getattr(kind, name))}"
        for name, sign in signs
        if getattr(kind, name, None) is not None
    ]
    if isinstance(kind, inspect.StrType):
        bounds += [_length(kind.min_length, kind.max_length)] if kind.min_length or kind.max_length else []
        bounds += [PATTERNS.get(kind.pattern, f"matches `{kind.pattern}`")] if kind.pattern else []
    return ", ".join(bounds)


def _length(least: int | None, most: int | None) -> str:
    if most is None:
        return "not empty" if least == 1 else f"at least {least} characters"
    return f"{least} to {most} characters" if least else f"at most {most} characters"
