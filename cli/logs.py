"""What the broker says to the people who run it: structlog on standard error, readable on a terminal and JSON otherwise.

Two promises. A cause that repeats writes at most so many lines a second, and what was left out is counted and said. A secret never appears:
values under telling names and passwords inside URLs are replaced, and tracebacks never show variables.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, TextIO

import structlog

from trilogue.config.model import Logging
from trilogue.secrecy import hidden

SUPPRESSED = "similar lines were left out"
CAUSES_MAX = 10_000

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

Event = MutableMapping[str, Any]


class RepeatLimit:
    """At most `per_second_max` lines of one cause (level and event) in a second. What went missing is reported when the second is over."""

    def __init__(self, per_second_max: int, report: Callable[[str, int], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second_max = per_second_max
        self._report = report
        self._clock = clock
        self._second = -1
        self._lines: dict[tuple[str, str], int] = {}

    def __call__(self, logger: Any, method: str, event: Event) -> Event:
        second = int(self._clock())
        if second != self._second:
            self._second = second
            self.flush()
        cause = (method, str(event.get("event")))
        if cause not in self._lines and len(self._lines) >= CAUSES_MAX:
            cause = (method, "other causes")
        seen = self._lines.get(cause, 0) + 1
        self._lines[cause] = seen
        if seen > self._per_second_max and event.get("event") != SUPPRESSED:
            raise structlog.DropEvent
        return event

    def flush(self) -> None:
        """Say now what was left out; at the end of a second, and before the process ends."""
        over = {cause: seen - self._per_second_max for cause, seen in self._lines.items() if seen > self._per_second_max and cause[1] != SUPPRESSED}
        self._lines = {}
        for (_, name), count in over.items():
            self._report(name, count)


class StdlibHandler(logging.Handler):
    """Passes what libraries say through `logging` on to structlog, so that it obeys the same rules."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info)


def configure(settings: Logging, stream: TextIO | None = None, environ: Mapping[str, str] = os.environ) -> RepeatLimit:
    """Set logging up, or anew after a reload. The result's `flush` is to be called before the process ends."""
    out = stream or sys.stderr
    terminal = out.isatty()
    limit = RepeatLimit(settings.repeats_per_second_max, report_suppressed)
    human = settings.format == "human" or (settings.format == "auto" and terminal)
    structlog.configure(
        processors=[
            limit,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderers(human, terminal and not environ.get("NO_COLOR")),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[settings.level]),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [StdlibHandler()]
    root.setLevel(max(LEVELS[settings.level], logging.INFO))
    return limit


def renderers(human: bool, colors: bool) -> list[Callable[[Any, str, Event], Any]]:
    # Rich and structured tracebacks would print local variables, and with them what clients sent.
    if human:
        return [hide_secrets, structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)]
    return [structlog.processors.format_exc_info, hide_secrets, structlog.processors.JSONRenderer(default=str)]


def report_suppressed(name: str, count: int) -> None:
    structlog.get_logger().warning(SUPPRESSED, cause=name, count=count)


def hide_secrets(logger: Any, method: str, event: Event) -> Event:
    return {key: hidden(key, value) for key, value in event.items()}
