"""Where the keys and values of a TOML text stand, which tomllib does not tell.

The scanner follows the grammar only as far as needed to find keys; it is given text that tomllib has accepted (or a part before an error), and
decides nothing about meaning. Lines and columns count from 1.
"""

from __future__ import annotations

import re
import tomllib

from trilogue.config.problems import Path

Position = tuple[int, int]

BARE = re.compile(r"[A-Za-z0-9_-]+")
BLANK = re.compile(r"[ \t]*")
BLANK_LINES = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
REST_OF_LINE = re.compile(r"[^\n]*")
SCALAR = re.compile(r"[^,\]}#\n]*")
STRING = re.compile(
    r'"""(?:\\[\s\S]|[^\\])*?"""(?:"{0,2})'         # up to two quotes may stand right before the closing three
    r"|'''[\s\S]*?'''(?:'{0,2})"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
)


class Positions:
    """The result of a scan: for each path the place of its key (or `[header]`) and of its value. `order` lists keys as they were met."""

    def __init__(self, text: str) -> None:
        self.keys: dict[Path, Position] = {}
        self.values: dict[Path, Position] = {}
        self.order: list[tuple[Path, Position]] = []
        self._text = text
        self._at = 0
        self._line = 1
        self._line_start = 0
        self._counted_to = 0
        self._lengths: dict[Path, int] = {}
        self._document()

    def find(self, path: Path, value: bool = False) -> Position | None:
        """The place of the value or key at `path`, or of the nearest thing that contains it."""
        while path:
            found = self.values.get(path) if value else None
            found = found or self.keys.get(path) or self.values.get(path)
            if found:
                return found
            path = path[:-1]
        return None

    def _document(self) -> None:
        table: Path = ()
        while self._skip(BLANK_LINES):
            if self._text.startswith("[[", self._at):
                table = self._header(2)
            elif self._text[self._at] == "[":
                table = self._header(1)
            else:
                self._key_value(table)
                self._skip(REST_OF_LINE)

    def _header(self, brackets: int) -> Path:
        position = self._position()
        self._at += brackets
        self._skip(BLANK)
        names = self._names()
        path: Path = ()
        for name, name_position in names[:-1]:
            path = self._newest((*path, name))
            self.keys.setdefault(path, name_position)
        path = (*path, names[-1][0])
        if brackets == 2:
            self._lengths[path] = self._lengths.get(path, 0) + 1
            self.keys.setdefault(path, position)
            path = (*path, self._lengths[path] - 1)
        self._note(path, names[-1][1], position)
        self._skip(REST_OF_LINE)
        return path

    def _newest(self, path: Path) -> Path:
        """An array of tables on the way means its newest table."""
        return (*path, self._lengths[path] - 1) if path in self._lengths else path

    def _key_value(self, table: Path) -> None:
        path = table
        names = self._names()
        for name, position in names:
            path = (*path, name)
            self.keys.setdefault(path, position)
        self.order.append((path, names[0][1]))
        self._at += 1                                   # the equals sign
        self._skip(BLANK)
        self._value(path)

    def _names(self) -> list[tuple[str, Position]]:
        """A dotted key; leaves the scanner behind it and the blanks that follow."""
        names = []
        while True:
            names.append(self._name())
            self._skip(BLANK)
            if not self._text.startswith(".", self._at):
                return names
            self._at += 1
            self._skip(BLANK)

    def _name(self) -> tuple[str, Position]:
        position = self._position()
        quoted = self._text[self._at: self._at + 1] in ('"', "'")
        found = (STRING if quoted else BARE).match(self._text, self._at)
        if found is None:
            raise ValueError(f"no key at line {position[0]}, column {position[1]}")
        self._at = found.end()
        return (tomllib.loads("key = " + found[0])["key"] if quoted else found[0]), position

    def _value(self, path: Path) -> None:
        self.values[path] = self._position()
        first = self._text[self._at: self._at + 1]
        if first == "[":
            self._array(path)
        elif first == "{":
            self._inline_table(path)
        elif first in ('"', "'"):
            found = STRING.match(self._text, self._at)
            self._at = found.end() if found else len(self._text)
        else:
            begin = self._at
            self._skip(SCALAR)
            if self._at == begin:
                raise ValueError(f"no value at line {self.values[path][0]}, column {self.values[path][1]}")

    def _array(self, path: Path) -> None:
        self._at += 1
        index = 0
        while self._skip(BLANK_LINES) and self._text[self._at] != "]":
            self._value((*path, index))
            index += 1
            self._skip(BLANK_LINES)
            if self._text.startswith(",", self._at):
                self._at += 1
        self._at += 1

    def _inline_table(self, path: Path) -> None:
        self._at += 1
        while self._skip(BLANK_LINES) and self._text[self._at] != "}":
            self._key_value(path)
            self._skip(BLANK_LINES)
            if self._text.startswith(",", self._at):
                self._at += 1
        self._at += 1

    def _note(self, path: Path, key: Position, value: Position) -> None:
        self.keys.setdefault(path, key)
        self.values.setdefault(path, value)
        self.order.append((path, key))

    def _skip(self, pattern: re.Pattern[str]) -> bool:
        """Move over what matches; is there anything left?"""
        found = pattern.match(self._text, self._at)
        assert found is not None                        # all of these patterns match nothing, too
        self._at = found.end()
        return self._at < len(self._text)

    def _position(self) -> Position:
        newlines = self._text.count("\n", self._counted_to, self._at)
        if newlines:
            self._line += newlines
            self._line_start = self._text.rindex("\n", 0, self._at) + 1
        self._counted_to = self._at
        return self._line, self._at - self._line_start + 1
