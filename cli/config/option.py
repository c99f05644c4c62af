"""How an option is described: a field of a frozen dataclass, with the rest of what there is to know about it as metadata.

The dataclasses of `model.py` and `definitions.py` are the schema. Checking, the annotated example file, `config show` and the answer to
"can this be reloaded?" all read it from there; nothing names an option a second time.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

BYTES = "bytes"
MS = "ms"

ADDRESS = "address"         # host:port
FILE = "file"               # must exist and be readable
FOLDER = "folder"           # made when it is needed
NAME = "name"               # letters, digits, dot, dash, underscore
REGEX = "regex"             # in RE2's language
HASH = "hash"               # a password hash

NO_LIMIT: Mapping[str, int] = {"unlimited": -1}


@dataclass(frozen=True)
class Rule:
    """What an option's value must obey, and what a person should know about it."""

    help: str
    unit: str = ""
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()
    words: Mapping[str, int] = field(default_factory=dict)     # words that stand for a number outside the range
    form: str = ""
    required: bool = False
    reload: bool = False
    secret: bool = False


@dataclass(frozen=True)
class Address:
    """Where a listener binds. Port 0 asks for a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Option:
    """One field as the readers of the schema see it."""

    name: str
    type: Any
    default: Any
    rule: Rule


def option(default: T, help: str, **rule: Any) -> T:
    """A dataclass field for an option; the keywords are those of `Rule`."""
    made: T = field(default=default, repr=not rule.get("secret"), metadata={"rule": Rule(help, **rule)})
    return made


def required(help: str, **rule: Any) -> Any:
    return field(metadata={"rule": Rule(help, required=True, **rule)})


def table(of: type[T], help: str) -> T:
    """A field for a table of options."""
    made: T = field(default_factory=of, metadata={"rule": Rule(help)})
    return made


def free_table(help: str, reload: bool = False) -> Any:
    """A field for a table whose keys are not ours to know."""
    return field(default_factory=dict, metadata={"rule": Rule(help, reload=reload)})


def options_of(shape: type[Any]) -> tuple[Option, ...]:
    """The options of a dataclass, in its order."""
    hints = typing.get_type_hints(shape)
    return tuple(Option(f.name, hints[f.name], default_of(f), f.metadata["rule"]) for f in dataclasses.fields(shape))


def default_of(f: dataclasses.Field[Any]) -> Any:
    if f.default_factory is not dataclasses.MISSING:
        return f.default_factory()
    return None if f.default is dataclasses.MISSING else f.default


def is_table(kind: Any) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind is not Address


def plain(kind: Any) -> Any:
    """`X | None` without the None."""
    if isinstance(kind, types.UnionType):
        return next(part for part in typing.get_args(kind) if part is not types.NoneType)
    return kind


def element(kind: Any) -> Any:
    """What a `tuple[X, ...]` or `dict[str, X]` holds; None for anything else."""
    if typing.get_origin(kind) is tuple:
        return typing.get_args(kind)[0]
    if typing.get_origin(kind) is dict:
        return typing.get_args(kind)[1]
    return None
