"""Finds the frontends: those that installed packages announce by an entry point, and those that the configuration names."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Iterable

import structlog

from trilogue.core.errors import OperatingError
from trilogue.core.frontend import Frontend

GROUP = "trilogue.frontends"

logger = structlog.get_logger("node")


class PluginError(OperatingError):
    """A frontend that was asked for cannot be loaded."""

    retry = False


def frontends(wanted: Iterable[str], plugins: Iterable[str]) -> dict[str, type[Frontend]]:
    """Every frontend by name; the configuration's win. One that cannot be loaded matters only if a listener wants it."""
    found: dict[str, type[Frontend]] = {}
    asked = set(wanted)
    announced = {entry.name: entry.value for entry in importlib.metadata.entry_points(group=GROUP)}
    announced.update(plugin.partition("=")[::2] for plugin in plugins)
    for name, path in announced.items():
        try:
            found[name] = load(path)
        except Exception as error:
            if name in asked:
                raise PluginError(f"frontend {name} ({path}) cannot be loaded: {error}") from error
            logger.warning("frontend not loaded", frontend=name, path=path, error=str(error))
    return found


def load(path: str) -> type[Frontend]:
    module, _, name = path.partition(":")
    loaded = getattr(importlib.import_module(module), name)
    if not (isinstance(loaded, type) and issubclass(loaded, Frontend)):
        raise TypeError(f"{path} is not a Frontend")
    return loaded
