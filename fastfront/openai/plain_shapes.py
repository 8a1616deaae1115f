"""What of a body's fields can be read natively, told from their types."""

from __future__ import annotations

from typing import Annotated, Any, Required, get_args, get_origin, get_type_hints

from fastfront._speedups.plain_body import SHAPES, PlainBodies
from fastfront.openai.fields import Count, Int64, StreamOptions, TokenId

# Types whose values need no look beyond their shape: integers that are read natively are within 64 bits.
_SHAPES: tuple[tuple[Any, str], ...] = (
    (type(None), "null"), (bool, "bool"), (int, "int"), (Int64, "int"), (Count, "int"), (float, "float"), (str, "text"),
    (list[str], "texts"), (list[int], "ids"), (list[TokenId], "ids"), (StreamOptions, "flags"), (list[Any], "messages"),
)  # fmt: skip


def plain_bodies(body: type) -> PlainBodies:
    """A reader of bodies of this typed dictionary; fields whose types are others than these make a body that is not plain."""
    hints = get_type_hints(body, include_extras=True)
    shapes = {name: sum(_shape(part) for part in _parts(hint)) for name, hint in hints.items()}
    required = tuple(name for name, hint in hints.items() if get_origin(hint) is Required)
    return PlainBodies({name: shape for name, shape in shapes.items() if shape}, required)


def _parts(hint: Any) -> tuple[Any, ...]:
    """The members of a union, else the type alone."""
    if get_origin(hint) is Required:
        (hint,) = get_args(hint)
    if get_origin(hint) is Annotated or not hasattr(hint, "__args__") or get_origin(hint) in (list, dict):
        return (hint,)
    return get_args(hint)


def _shape(part: Any) -> int:
    return next((SHAPES[shape] for known, shape in _SHAPES if known == part), 0)
