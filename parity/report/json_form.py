"""Dataclasses to JSON and back. JSON has no infinity, so an infinite number is the string "inf"."""

import json
import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

_NAMES = {dict: "an object", list: "a list", str: "a string", int: "a whole number", bool: "true or false"}


class Damaged(Exception):
    """A document that is not what its schema says: `place` in the document, what is there and what is expected."""

    def __init__(self, what: str, place: str = "") -> None:
        super().__init__(f"{place.lstrip('.') or 'the document'} {what}")
        self.what, self.place = what, place


def encode(document: object) -> str:
    """`document` with full precision; dataclasses become objects."""
    return json.dumps(_plain(document), allow_nan=False) + "\n"


def decode(kind: Any, value: object) -> Any:
    """`value`, as json.loads returns it, as `kind`: a dataclass, list[X], dict[str, X], X | None, or a plain type.

    Fields of a dataclass that have a default may be missing; keys that it does not know are left out. Raises Damaged.
    """
    if kind is float:
        return _number(value)
    origin = get_origin(kind)
    if origin is list:
        return [_at(f"[{i}]", get_args(kind)[0], x) for i, x in enumerate(_of_type(list, value))]
    if origin in (dict, Mapping):
        return {key: _at(f".{key}", get_args(kind)[1], x) for key, x in _of_type(dict, value).items()}
    if origin in (Union, types.UnionType):
        return None if value is None else decode(get_args(kind)[0], value)
    return _object(kind, _of_type(dict, value)) if is_dataclass(kind) else _of_type(kind, value)


def _at(place: str, kind: Any, value: object) -> Any:
    try:
        return decode(kind, value)
    except Damaged as damaged:
        raise Damaged(damaged.what, place + damaged.place) from None


def _object(kind: Any, given: dict[str, object]) -> Any:
    kinds = _kinds(kind)
    needed = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in needed if name not in given]
    if missing:
        raise Damaged(f"has no {', '.join(missing)}; its keys are {', '.join(given) or 'none'}")
    known = {name: _at(f".{name}", kinds[name], x) for name, x in given.items() if name in kinds}
    try:
        return kind(**known)
    except ValueError as error:
        raise Damaged(f"is at odds with itself: {error}") from None


def _number(value: object) -> float:
    if value == "inf":
        return math.inf
    if isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value):
        return float(value)
    raise Damaged(f'is {_short(value)}; expected a number or "inf"')


def _of_type(kind: type, value: object) -> Any:
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    raise Damaged(f"is {_short(value)}; expected {_NAMES[kind]}")


@cache
def _kinds(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _plain(x: Any) -> Any:
    if isinstance(x, list | tuple):
        return [_plain(value) for value in x]
    if isinstance(x, Mapping):
        return {key: _plain(value) for key, value in x.items()}
    if is_dataclass(x):
        return {field.name: _plain(getattr(x, field.name)) for field in fields(x)}
    return "inf" if x == math.inf else x
