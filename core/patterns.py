"""Patterns that users write: google-re2's, searched and not anchored unless they say so. They always run in linear time.

A pattern that re2 cannot run (a backreference, a lookahead) is refused when it is set, not when it is used.
"""

from __future__ import annotations

from typing import Any, Final

import re2

from trilogue.core.errors import InvalidArgument

PATTERN_BYTES_MAX: Final = 4_096
NOTHING: Final = "^$"

_options: Final = re2.Options()
_options.log_errors = False


class Pattern:
    """A compiled pattern."""

    def __init__(self, source: str) -> None:
        self.source: str = source
        self.regexp: Any = compiled(source)

    def finds(self, subject: str) -> bool:
        """False, too, for a subject that is not valid Unicode: no pattern can mean it."""
        try:
            return self.regexp.search(subject) is not None
        except UnicodeEncodeError:
            return False


def check_pattern(source: str) -> None:
    """Raises unless a `Pattern` can be made of it."""
    try:
        size = len(source.encode())
    except UnicodeEncodeError:
        raise InvalidArgument("a pattern is not valid UTF-8") from None
    if size > PATTERN_BYTES_MAX:
        raise InvalidArgument(f"a pattern is longer than {PATTERN_BYTES_MAX} bytes")
    compiled(source)


def compiled(source: str) -> Any:
    try:
        return re2.compile(source, _options)
    except re2.error as e:
        raise InvalidArgument(f"invalid regexp '{source[:100]}': {e}") from None


def filled(template: str, user: str, vhost: str, client_id: str) -> str:
    """The template's variables replaced by values that match themselves, letter by letter.

    In one pass, so that a value that looks like a variable or like a pattern (`%u`, `.*`) stays what it is.
    """
    values = {"{username}": user, "{vhost}": vhost, "{client_id}": client_id, "%u": user, "%c": client_id}
    parts: list[str] = []
    at = 0
    while at < len(template):
        variable = variable_at(template, at, values)
        if variable:
            parts.append(re2.escape(values[variable]))
            at += len(variable)
        else:
            parts.append(template[at])
            at += 1
    return "".join(parts)


def variable_at(template: str, at: int, values: dict[str, str]) -> str:
    if template[at] == "{" or template[at] == "%":
        for variable in values:
            if template.startswith(variable, at):
                return variable
    return ""
