"""What must never be printed, and what is printed in its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "********"
TELLING_NAME = re.compile(r"passw|secret|token|credential|authorization|cookie|private|api_?key", re.IGNORECASE)
URL_PASSWORD = re.compile(r"(\w+://[^\s:/@]*:)[^\s@]+@")


def hidden(name: str, value: Any) -> Any:
    """The value with every secret in it replaced: all of it if its name says so, else what is nested in it and passwords in URLs."""
    if TELLING_NAME.search(name) and isinstance(value, str | bytes):
        return HIDDEN
    if isinstance(value, str):
        return URL_PASSWORD.sub(rf"\1{HIDDEN}@", value)
    if isinstance(value, Mapping):
        return {key: hidden(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [hidden("", inner) for inner in value]
    return value
