"""Mistakes in a configuration: each says where, which key, what is wrong and, if it can, what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Place:
    """Where a value was written: a file with line and column, or an environment variable or an argument (line 0)."""

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


@dataclass(frozen=True)
class Problem:
    place: Place
    key: str
    message: str
    suggestion: str = ""

    def __str__(self) -> str:
        text = f"{self.place}: {self.key}: {self.message}" if self.key else f"{self.place}: {self.message}"
        return f"{text} ({self.suggestion})" if self.suggestion else text


class ConfigError(Exception):
    """Everything that is wrong, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(problems, key=lambda p: (p.place.line == 0, p.place.source, p.place.line, p.place.column))
        super().__init__("\n".join(map(str, self.problems)))


def dotted(path: Path) -> str:
    """("users", 0, "name") as users[0].name."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if part.replace("-", "_").isidentifier() else f'"{part}"')
    return text


def did_you_mean(word: str, known: Iterable[str]) -> str:
    words = list(known)
    close = difflib.get_close_matches(word.lower(), words, n=1, cutoff=0.6) or [one for one in words if len(word) > 2 and one.startswith(word)]
    return f"did you mean {close[0]}?" if close else ""
