"""The configuration as text: the annotated example file, and the effective values with where they came from. Secrets are never printed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from trilogue.config.check import span
from trilogue.config.diff import Setting, settings, shown
from trilogue.config.load import Loaded
from trilogue.config.model import Config, Listener, default_listeners
from trilogue.config.option import BYTES, MS, Address, Option, element, is_table, options_of, plain
from trilogue.config.problems import Path, dotted

BARE = re.compile(r"[A-Za-z0-9_-]+")
SCALES = {
    BYTES: ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")),
    MS: ((86_400_000, "days"), (3_600_000, "hours"), (60_000, "min"), (1_000, "s")),
}
HEADER = """\
# Every option of Trilogue with its default. Copy what you change; leave out what you do not.
#
# The order is: this file, then environment variables, then --set on the command line. An option's variable is its path in capitals with two
# underscores between the parts: TRILOGUE_STORAGE__SEGMENT_BYTES, TRILOGUE_LISTENERS__AMQP__BIND.
# Sizes are bytes and times milliseconds; text such as "64 MiB" or "7 days" is understood as well. Relative paths start at this file's folder.
# Options marked "reload" change with SIGHUP; the others need a restart. ## explains; a single # shows something that is not set.
"""


def effective(loaded: Loaded, origin: bool) -> Iterator[str]:
    """One `key = value` a line, as TOML with dotted keys; with `origin`, each followed by where it was set."""
    for setting in settings(loaded.config):
        line = f"{dotted_toml(setting.path)} = {toml(worded(setting))}"
        yield f"{line}  # {loaded.origin(setting.path)}" if origin else line


def worded(setting: Setting) -> Any:
    words = {number: word for word, number in setting.rule.words.items()}
    if isinstance(setting.value, int) and setting.value in words and not isinstance(setting.value, bool):
        return words[setting.value]
    return shown(setting.value, setting.rule)


def toml(value: Any) -> str:
    """A value as TOML writes it. What is not set has no TOML, and is shown as empty text."""
    if value is None:
        return '""'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, Address | str):
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_key(key)} = {toml(inner)}" for key, inner in value.items() if inner is not None) + "}"
    assert isinstance(value, list | tuple)
    return "[" + ", ".join(map(toml, value)) + "]"


def toml_key(key: str) -> str:
    return key if BARE.fullmatch(key) else toml(key)


def dotted_toml(path: Path) -> str:
    return ".".join(toml_key(str(part)) for part in path)


def template() -> str:
    """The annotated example file, `conf/trilogue.toml`."""
    lines = [HEADER]
    for option in options_of(Config):
        lines.extend(section(option))
    return "\n".join(lines).rstrip("\n") + "\n"


def section(option: Option) -> Iterator[str]:
    inner = element(option.type)
    if is_table(option.type):
        yield from table_lines(option.type, (option.name,), option.rule.help)
    elif inner is Listener:
        yield from listener_lines(option)
    else:
        assert is_table(inner)
        yield f"## {option.rule.help} (reload)"
        yield f"# [[{option.name}]]"
        yield from (line for field in options_of(inner) for line in commented(field))
        yield ""


def table_lines(shape: type[Any], path: Path, help: str) -> Iterator[str]:
    yield f"## {help}"
    yield f"[{dotted(path)}]"
    nested = []
    for option in options_of(shape):
        if is_table(option.type):
            nested.append(option)
        else:
            yield f"## {described(option)}"
            yield f"{option.name} = {toml(worded(Setting(path, option.default, option.rule)))}{readable(option)}"
    yield ""
    for option in nested:
        yield from table_lines(option.type, (*path, option.name), option.rule.help)


def listener_lines(listeners: Option) -> Iterator[str]:
    yield f"## {listeners.rule.help}"
    for name, listener in default_listeners().items():
        yield f"[listeners.{name}]"
        yield f"bind = {toml(listener.bind)}"
        yield ""
    yield "# [listeners.replication]"
    yield '# bind = ""'
    yield ""
    yield "## What a listener can have, shown for one:"
    yield "# [listeners.amqp]"
    for option in options_of(Listener):
        if not is_table(plain(option.type)):
            yield from commented(option)
    yield "# [listeners.amqp.tls]"
    tls = next(plain(option.type) for option in options_of(Listener) if is_table(plain(option.type)))
    for option in options_of(tls):
        yield from commented(option)
    yield ""


def commented(option: Option) -> Iterator[str]:
    """An option that is not set. One without a default shows a word that it takes."""
    yield f"## {described(option)}"
    value = worded(Setting((), option.default, option.rule))
    if value is None and option.rule.words:
        value = next(iter(option.rule.words))
    yield f"# {option.name} = {toml(value)}{readable(option)}"


def described(option: Option) -> str:
    rule = option.rule
    facts = []
    if rule.required:
        facts.append("required")
    if rule.choices:
        facts.append(" | ".join(toml(choice) for choice in rule.choices))
    if rule.low is not None or rule.high is not None:
        facts.append(span(rule))
    if rule.reload:
        facts.append("reload")
    return f"{rule.help} ({'; '.join(facts)})" if facts else rule.help


def readable(option: Option) -> str:
    """A large number's size in words, as a comment behind it."""
    for scale, name in SCALES.get(option.rule.unit, ()):
        if isinstance(option.default, int) and option.default >= scale and option.default % scale == 0:
            return f"  # {option.default // scale} {name}"
    return ""
