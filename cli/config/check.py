"""From raw values to the dataclasses of the schema. Every mistake is noted and the default taken in its place, so that one pass finds them all."""

from __future__ import annotations

import base64
import binascii
import os
import pathlib
import re
import tomllib
from typing import Any

import re2

from trilogue.config.option import BYTES, FILE, FOLDER, HASH, MS, NAME, REGEX, Address, Option, Rule, element, is_table, options_of, plain
from trilogue.config.problems import Path, Problem, did_you_mean, dotted
from trilogue.config.source import Source, Text

NAME_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
QUANTITY = re.compile(r"(\d[\d_]*)\s*([A-Za-z]+)")
UNITS = {
    BYTES: {"b": 1, "bytes": 1, "kb": 10**3, "kib": 1024, "mb": 10**6, "mib": 1024**2, "gb": 10**9, "gib": 1024**3, "tb": 10**12, "tib": 1024**4},
    MS: {"ms": 1, "s": 1_000, "seconds": 1_000, "min": 60_000, "minutes": 60_000, "h": 3_600_000, "hours": 3_600_000, "d": 86_400_000,
         "days": 86_400_000},
}
SHOWN = {str: "text", int: "a whole number", bool: "true or false"}
HASH_BYTES = (4 + 32, 4 + 64)           # RabbitMQ's: a salt and a SHA-256 or SHA-512


class Checker:
    """Reads one source into dataclasses; `problems` collects what is wrong."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.problems: list[Problem] = []

    def table(self, shape: type[Any], raw: Any, path: Path) -> Any:
        if not isinstance(raw, dict):
            self.complain(path, f"must be a table, not {kind_of(raw)}")
            return shape(**{option.name: "" for option in options_of(shape) if option.rule.required})
        options = options_of(shape)
        known = [option.name for option in options]
        for key in raw:
            if key not in known:
                self.complain((*path, key), "is not an option" + (f" of {dotted(path)}" if path else ""), did_you_mean(key, known), key=True)
        values = {option.name: self._field(option, raw, (*path, option.name)) for option in options}
        return shape(**values)

    def complain(self, path: Path, message: str, suggestion: str = "", key: bool = False) -> None:
        self.problems.append(Problem(self._source.place(path, value=not key), dotted(path), message, suggestion))

    def _field(self, option: Option, raw: dict[str, Any], path: Path) -> Any:
        if option.name in raw:
            return self._value(option, plain(option.type), raw[option.name], path)
        if option.rule.required:
            self.complain(path[:-1], f"needs {option.name}", key=True)
            return ""
        return option.default

    def _value(self, option: Option, kind: Any, raw: Any, path: Path) -> Any:
        inner = element(kind)
        if is_table(kind):
            return self.table(kind, raw, path)
        if is_table(inner):
            return self._tables(option, inner, raw, path)
        if inner is object:
            return self._free(option, raw, path)
        if inner is str:
            return self._texts(option, raw, path)
        if kind is Address:
            return self._address(raw, path)
        if kind is bool:
            return self._truth(option, raw, path)
        if kind is int:
            return self._number(option, raw, path)
        return self._text(option, raw, path)

    def _tables(self, option: Option, shape: type[Any], raw: Any, path: Path) -> Any:
        if isinstance(option.default, dict):
            if not isinstance(raw, dict):
                self.complain(path, f"must be a table of tables, not {kind_of(raw)}")
                return option.default
            return {name: self.table(shape, value, (*path, name)) for name, value in raw.items()}
        if not isinstance(raw, list):
            self.complain(path, f"must be a list of tables ([[{dotted(path)}]]), not {kind_of(raw)}")
            return option.default
        return tuple(self.table(shape, value, (*path, index)) for index, value in enumerate(raw))

    def _free(self, option: Option, raw: Any, path: Path) -> Any:
        if not isinstance(raw, dict):
            self.complain(path, f"must be a table, not {kind_of(raw)}")
            return option.default
        for key, value in raw.items():
            self._free_value(value, (*path, key))
        return raw

    def _free_value(self, raw: Any, path: Path) -> None:
        if isinstance(raw, dict):
            for key, value in raw.items():
                self._free_value(value, (*path, key))
        elif isinstance(raw, list):
            for index, value in enumerate(raw):
                self._free_value(value, (*path, index))
        elif not isinstance(raw, bool | int | float | str):
            self.complain(path, f"cannot be {kind_of(raw)} here")

    def _texts(self, option: Option, raw: Any, path: Path) -> Any:
        if isinstance(raw, str):
            raw = [part.strip() for part in raw.split(",") if part.strip()]
        if not isinstance(raw, list):
            self.complain(path, f"must be a list of texts, not {kind_of(raw)}")
            return option.default
        texts = []
        for index, value in enumerate(raw):
            if isinstance(value, str):
                texts.append(str(value))
                self._choice(option.rule, value, (*path, index))
            else:
                self.complain((*path, index), f"must be text, not {kind_of(value)}")
        return tuple(texts)

    def _truth(self, option: Option, raw: Any, path: Path) -> Any:
        if isinstance(raw, Text) and raw in ("true", "false"):
            return raw == "true"
        return raw if isinstance(raw, bool) else self._wrong(option, raw, path, bool)

    def _number(self, option: Option, raw: Any, path: Path) -> Any:
        rule = option.rule
        number = quantity(raw, rule)
        if number is None:
            return self._wrong(option, raw, path, int)
        if isinstance(raw, str) and raw in rule.words:
            return number
        if (rule.low is not None and number < rule.low) or (rule.high is not None and number > rule.high):
            self.complain(path, f"{number} is out of range", span(rule))
            return option.default
        return number

    def _wrong(self, option: Option, raw: Any, path: Path, kind: type[Any]) -> Any:
        expected = SHOWN[kind]
        if kind is int and option.rule.unit in UNITS:
            expected += f" ({option.rule.unit}) or text like {'64 MiB' if option.rule.unit == BYTES else '30 s'}"
        if option.rule.words:
            expected += " or " + " or ".join(f'"{word}"' for word in option.rule.words)
        suggestion = did_you_mean(raw, [*option.rule.words, *(("true", "false") if kind is bool else ())]) if isinstance(raw, str) else ""
        self.complain(path, f"must be {expected}, not {kind_of(raw)}", suggestion)
        return option.default

    def _text(self, option: Option, raw: Any, path: Path) -> Any:
        rule = option.rule
        if rule.form == NAME and isinstance(raw, int) and not isinstance(raw, bool):
            raw = str(raw)
        if not isinstance(raw, str):
            return self._wrong(option, raw, path, str)
        text = str(raw)
        if rule.required and not text and rule.form != REGEX:
            self.complain(path, "must not be empty")
        elif "\0" in text:
            self.complain(path, "must not contain NUL")
        elif self._choice(rule, text, path):
            return self._formed(rule, text, path)
        return option.default or ""

    def _choice(self, rule: Rule, text: str, path: Path) -> bool:
        if not rule.choices or text in rule.choices:
            return True
        named = ", ".join(f'"{choice}"' for choice in rule.choices)
        self.complain(path, f'"{text}" is not one of {named}', did_you_mean(text, rule.choices))
        return False

    def _formed(self, rule: Rule, text: str, path: Path) -> str:
        if rule.form == NAME and not NAME_FORM.fullmatch(text):
            self.complain(path, "may have letters, digits, dots, dashes and underscores, at most 64, and begins with a letter or digit")
        elif rule.form == REGEX:
            try:
                re2.compile(text)
            except re2.error as e:
                self.complain(path, f"is not a regular expression that RE2 can run: {reason_of(e)}")
        elif rule.form == HASH and text and not is_hash(text):
            self.complain(path, "is neither an argon2 hash nor base64 of a RabbitMQ hash", "a password in clear goes into password")
        elif rule.form in (FILE, FOLDER) and text:
            return self._located(rule, pathlib.Path(text).expanduser(), path)
        return text

    def _located(self, rule: Rule, file: pathlib.Path, path: Path) -> str:
        file = self._source.base(path) / file
        if rule.form == FILE and not (file.is_file() and os.access(file, os.R_OK)):
            self.complain(path, f"{file} is not a file" if not file.is_file() else f"{file} may not be read by this user")
        elif rule.form == FOLDER and file.exists() and not file.is_dir():
            self.complain(path, f"{file} is not a folder")
        return str(file)

    def _address(self, raw: Any, path: Path) -> Address | None:
        if not isinstance(raw, str):
            self.complain(path, f'must be text like "127.0.0.1:5672", not {kind_of(raw)}', f'"127.0.0.1:{raw}"' if isinstance(raw, int) else "")
            return None
        if not raw:
            return None
        address = address_of(raw)
        if address is None:
            self.complain(path, f'"{raw}" is not host:port', f'"127.0.0.1:{raw}"' if raw.isdigit() else "")
        elif address.port > 65_535:
            self.complain(path, f"port {address.port} is out of range", "0 to 65535; 0 takes a free one")
        return address


def quantity(raw: Any, rule: Rule) -> int | None:
    """The number that `raw` stands for; None if it stands for none."""
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    if not isinstance(raw, str):
        return None
    if raw in rule.words:
        return rule.words[raw]
    if isinstance(raw, Text):
        try:
            number = tomllib.loads("n = " + raw).get("n")
        except tomllib.TOMLDecodeError:
            number = None
        if isinstance(number, int) and not isinstance(number, bool):
            return number
    found = QUANTITY.fullmatch(raw.strip())
    scale = UNITS.get(rule.unit, {}).get(found[2].lower()) if found else None
    return int(found[1].replace("_", "")) * scale if found and scale else None


def address_of(text: str) -> Address | None:
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not port.isascii() or not port.isdigit():
        return None
    if bracketed:
        host = host[1:-1]
    elif ":" in host:
        return None
    return None if not host or any(c.isspace() or c in "/[]" for c in host) else Address(host, int(port))


def is_hash(text: str) -> bool:
    if text.startswith("$argon2"):
        return True
    try:
        return len(base64.b64decode(text, validate=True)) in HASH_BYTES
    except binascii.Error:
        return False


def span(rule: Rule) -> str:
    unit = f" {rule.unit}" if rule.unit else ""
    if rule.low is not None and rule.high is not None:
        text = f"{rule.low} to {rule.high}{unit}"
    elif rule.low is not None:
        text = f"at least {rule.low}{unit}"
    else:
        text = f"at most {rule.high}{unit}"
    return text + "".join(f' or "{word}"' for word in rule.words)


def kind_of(raw: Any) -> str:
    if isinstance(raw, bool):
        return "true or false"
    names = {int: "a number", float: "a fraction", str: "text", Text: "text", list: "a list", dict: "a table"}
    return names.get(type(raw), "a date or time")


def reason_of(error: Exception) -> str:
    reason = error.args[0] if error.args else error
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
