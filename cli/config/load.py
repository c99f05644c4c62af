"""The one way to a `Config`: read every layer, check everything, and either return a whole configuration or say all that is wrong."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trilogue.config import cross
from trilogue.config.check import Checker
from trilogue.config.model import Config, default_listeners
from trilogue.config.problems import ConfigError, Path
from trilogue.config.source import Source


@dataclass(frozen=True)
class Loaded:
    config: Config
    source: Source

    def origin(self, path: Path) -> str:
        """Where the value at `path` was set: a place, or `default`."""
        return str(self.source.place(path)) if self.source.is_written(path) else "default"


def load(
    path: pathlib.Path | None = None, environ: Mapping[str, str] | None = None, arguments: Iterable[str] = (), frontends: Iterable[str] = ()
) -> Loaded:
    """`frontends` names those that are installed besides ours. Raises `ConfigError` with every problem."""
    source = Source()
    if path is not None:
        source.read_file(path)
    source.read_environment(environ or {})
    source.read_arguments(arguments)
    checker = Checker(source)
    if not source.has_listeners:
        add_default_listeners(source)
    config: Config = checker.table(Config, source.data, ())
    cross.check(config, checker, frontends)
    problems = source.problems + checker.problems
    if problems:
        raise ConfigError(problems)
    listeners = {name: dataclasses.replace(one, frontend=one.frontend or name) for name, one in config.listeners.items() if one.bind}
    return Loaded(dataclasses.replace(config, listeners=listeners), source)


def add_default_listeners(source: Source) -> None:
    """The embedded defaults hold as long as the file names no listener; variables and arguments change single ones of them."""
    listeners = source.data.setdefault("listeners", {})
    if isinstance(listeners, dict):
        for name, listener in default_listeners().items():
            own = listeners.setdefault(name, {})
            if isinstance(own, dict):
                own.setdefault("bind", str(listener.bind))
