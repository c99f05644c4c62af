"""What was written, before anybody asks whether it makes sense: one tree of raw values, merged from file, environment and arguments.

Later layers win: the file, then environment variables, then `--set`. A variable is named `TRILOGUE_` and the path of the option in capitals
with two underscores between the parts, `TRILOGUE_STORAGE__SEGMENT_BYTES` or `TRILOGUE_LISTENERS__AMQP__BIND`; names without two
underscores are not options.
Values from the environment and from `--set` are read as TOML if they can be (`true`, `7`, `["a", "b"]`), else as text.
"""

from __future__ import annotations

import pathlib
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from trilogue.config.positions import Positions
from trilogue.config.problems import Path, Place, Problem, dotted

PREFIX = "TRILOGUE_"
UNREADABLE = "__unreadable_"            # stands in for a header that could not be read, so that what follows it does not land elsewhere
SYNTAX_ERRORS_MAX = 20
FILE_BYTES_MAX = 4 * 1024 * 1024
AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


class Text(str):
    """A value that came as bare text; it may stand for anything that the option's type can be read from."""


class Source:
    """The merged tree, where each value came from, and what could not be read."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self.problems: list[Problem] = []
        self.has_listeners = False
        self.folder = pathlib.Path()
        self._file = ""
        self._positions = Positions("")
        self._overrides: dict[Path, Place] = {}

    def read_file(self, path: pathlib.Path) -> None:
        self._file = str(path)
        self.folder = path.parent
        try:
            raw = path.read_bytes()
        except OSError as e:
            self.problems.append(Problem(Place(self._file), "", f"cannot be read: {e.strerror}"))
            return
        if len(raw) > FILE_BYTES_MAX:
            self.problems.append(Problem(Place(self._file), "", f"is larger than {FILE_BYTES_MAX} bytes, so it is hardly a configuration"))
            return
        try:
            text = raw.decode().replace("\r\n", "\n")
        except UnicodeDecodeError as e:
            line = raw.count(b"\n", 0, e.start) + 1
            column = e.start - raw.rfind(b"\n", 0, e.start)
            self.problems.append(Problem(Place(self._file, line, column), "", "is not UTF-8"))
            return
        self._read_text(text)
        self.has_listeners = "listeners" in self.data

    def read_environment(self, environ: Mapping[str, str]) -> None:
        for name in sorted(environ):
            if name.startswith(PREFIX) and "__" in name.removeprefix(PREFIX).strip("_"):
                path = tuple(name.removeprefix(PREFIX).lower().split("__"))
                self._override(path, environ[name], Place(f"environment {name}"))

    def read_arguments(self, arguments: Iterable[str]) -> None:
        for argument in arguments:
            key, equals, value = argument.partition("=")
            try:
                path = tuple(key_path(key))
            except ValueError:
                path = ()
            if not equals or not path:
                self.problems.append(Problem(Place("--set"), argument.split("=")[0], "is not of the form key=value"))
            else:
                self._override(path, value.strip(), Place(f"--set {dotted(path)}"))

    def place(self, path: Path, value: bool = False) -> Place:
        """Where `path`, or the nearest thing that contains it, was written; of a file the value's or the key's position."""
        for end in range(len(path), 0, -1):
            if path[:end] in self._overrides:
                return self._overrides[path[:end]]
        if path and not self.is_written(path):
            for override, place in self._overrides.items():
                if override[: len(path)] == path:
                    return place
        found = self._positions.find(path, value)
        return Place(self._file, *found) if found else Place(self._file or "default")

    def is_written(self, path: Path) -> bool:
        """Was this very value set by any layer, alone or as part of a larger one?"""
        return path in self._positions.keys or path in self._positions.values or any(path[:end] in self._overrides for end in range(1, len(path) + 1))

    def base(self, path: Path) -> pathlib.Path:
        """The folder that a relative path at `path` is relative to."""
        return self.folder if self.place(path).line else pathlib.Path()

    def _read_text(self, text: str) -> None:
        lines = text.split("\n")
        for _ in range(SYNTAX_ERRORS_MAX):
            try:
                self.data = tomllib.loads("\n".join(lines))
            except tomllib.TOMLDecodeError as e:
                if not self._set_aside(lines, str(e)):
                    return
            except RecursionError:
                self.problems.append(Problem(Place(self._file), "", "is nested too deeply"))
                return
            else:
                self.data = {key: value for key, value in self.data.items() if not key.startswith(UNREADABLE)}
                self._positions = Positions("\n".join(lines))
                return

    def _set_aside(self, lines: list[str], message: str) -> bool:
        """Report a syntax error and take its line out, so that the rest can still be checked. False if there is no telling where it is."""
        found = AT.search(message)
        reason = AT.sub("", message)
        reason = reason[:1].lower() + reason[1:]
        if found is None or found[1] is None:
            self.problems.append(Problem(Place(self._file, len(lines), len(lines[-1]) + 1), "", f"{reason}; something begun before is not ended"))
            return False
        line, column = int(found[1]), int(found[2])
        key = ""
        if reason.startswith(("cannot overwrite", "cannot declare", "duplicate")):
            reason = "is defined twice"
            key, line, column = self._last_key(lines[:line], line, column)
        self.problems.append(Problem(Place(self._file, line, column), key, reason))
        if lines[line - 1].startswith("#"):
            return False                                # it was set aside before, and that did not help
        header = lines[line - 1].lstrip().startswith("[")
        lines[line - 1] = f"[{UNREADABLE}{line}]" if header and UNREADABLE not in lines[line - 1] else "#"
        return True

    def _last_key(self, lines: list[str], line: int, column: int) -> tuple[str, int, int]:
        try:
            path, position = Positions("\n".join(lines)).order[-1]
        except (ValueError, IndexError):
            return "", line, column
        return dotted(path), *position

    def _override(self, path: tuple[str, ...], text: str, place: Place) -> None:
        table = self.data
        for part in path[:-1]:
            inner = table.setdefault(part, {})
            if not isinstance(inner, dict):
                self.problems.append(Problem(place, dotted(path), f"{part} is not a table, so nothing in it can be set"))
                return
            table = inner
        table[path[-1]] = parsed(text)
        self._overrides[path] = place


def parsed(text: str) -> Any:
    try:
        document = tomllib.loads("value = " + text)
    except tomllib.TOMLDecodeError:
        return Text(text)
    value = document.pop("value")
    # A plain word or number stays text, too: an option of type string takes `7` or `true` as it stands.
    return Text(text) if document or isinstance(value, bool | int | float) else value


def key_path(key: str) -> list[str]:
    """A dotted key, as TOML writes it."""
    try:
        tree: Any = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError as e:
        raise ValueError(key) from e
    path = []
    while isinstance(tree, dict):
        if len(tree) != 1:
            raise ValueError(key)
        (part, tree), = tree.items()
        path.append(part)
    return path
