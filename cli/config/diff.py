"""What a reload would change, and which of that needs a restart."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trilogue.config.model import Config
from trilogue.config.option import Rule, element, is_table, options_of, plain
from trilogue.config.problems import Path, dotted
from trilogue.secrecy import HIDDEN, hidden


@dataclass(frozen=True)
class Setting:
    """One effective value. Definitions count as one setting per list."""

    path: Path
    value: Any
    rule: Rule


@dataclass(frozen=True)
class Change:
    key: str
    old: Any
    new: Any


def settings(config: Config) -> Iterator[Setting]:
    """Every effective value, depth first, in the order of the schema."""
    yield from walk(config, ())


def walk(table: Any, path: Path) -> Iterator[Setting]:
    for option in options_of(type(table)):
        value = getattr(table, option.name)
        at = (*path, option.name)
        kind = plain(option.type)
        if isinstance(value, dict) and is_table(element(kind)):
            for name, inner in value.items():
                yield from walk(inner, (*at, name))
        elif is_table(kind) and value is not None:
            yield from walk(value, at)
        else:
            yield Setting(at, value, option.rule)


def diff(old: Config, new: Config) -> tuple[list[Change], list[Change]]:
    """(changes that can be applied now, changes that need a restart). Secrets are compared, never shown."""
    before = {setting.path: setting for setting in settings(old)}
    after = {setting.path: setting for setting in settings(new)}
    now: list[Change] = []
    later: list[Change] = []
    for path in sorted(before.keys() | after.keys(), key=str):
        was, will = before.get(path), after.get(path)
        if was and will and was.value == will.value:
            continue
        rule = (will or was or Setting(path, None, Rule(""))).rule
        # A setting that appears or goes means that a listener or its TLS does, which only a restart can do.
        reload = rule.reload and was is not None and will is not None
        change = Change(dotted(path), shown(was.value, rule) if was else None, shown(will.value, rule) if will else None)
        (now if reload else later).append(change)
    return now, later


def shown(value: Any, rule: Rule) -> Any:
    """The value as it may be printed."""
    if rule.secret:
        return HIDDEN if value else ""
    if isinstance(value, tuple):
        return tuple(masked(item) if is_table(type(item)) else item for item in value)
    return hidden("", value)


def masked(item: Any) -> dict[str, Any]:
    rules = {option.name: option.rule for option in options_of(type(item))}
    return {f.name: shown(getattr(item, f.name), rules[f.name]) for f in dataclasses.fields(item)}
