"""Arguments (AMQP tables, CBOR maps) in a form that can be compared and hashed.

Two values have equal forms exactly if they have the same type and the same content: `True`, `1` and `1.0` differ, the order of a map's
keys does not matter, that of a list does.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from trilogue.core.errors import InvalidArgument

DEPTH_MAX: Final = 128
NOTHING: Final[tuple[object, ...]] = ()      # the form of an empty map, which nearly all bindings have


def canonical_map(arguments: dict[str, object]) -> tuple[object, ...]:
    if not arguments:
        return NOTHING
    return _map_form(arguments, 0)


def canonical(value: object) -> object:
    """The form of a single value. Strings, the usual case, stand for themselves; everything else is a tuple that begins with its type."""
    return _form(value, 0)


def _form(value: object, depth: i64) -> object:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, int):
        return ("int", value)
    if isinstance(value, (list, tuple)):
        _check(depth)
        items: list[object] = ["list"]
        for item in value:
            items.append(_form(item, depth + 1))
        return tuple(items)
    if isinstance(value, dict):
        return ("map", _map_form(value, depth))
    if isinstance(value, (bytes, bytearray)):
        return ("bytes", bytes(value))
    # Floats too: `repr` tells 0.0 from -0.0 and makes a NaN equal to itself, as a binding's identity must.
    return (type(value).__name__, repr(value))


def _map_form(table: dict[str, object], depth: i64) -> tuple[object, ...]:
    _check(depth)
    pairs: list[object] = []
    for name in sorted(table):
        pairs.append((name, _form(table[name], depth + 1)))
    return tuple(pairs)


def _check(depth: i64) -> None:
    if depth >= DEPTH_MAX:
        raise InvalidArgument(f"arguments are nested more than {DEPTH_MAX} deep")
