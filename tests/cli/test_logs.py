from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from trilogue import logs
from trilogue.config.model import Logging
from trilogue.core.errors import AuthenticationFailed


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def undone() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    structlog.reset_defaults()
    root.handlers, root.level = handlers, level


def written(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_json_where_nobody_watches() -> None:
    out = io.StringIO()
    logs.configure(Logging(), out)
    structlog.get_logger().warning("disk is low", free_bytes=7, peer=("a", 1))
    line, = written(out)
    assert (line["event"], line["level"], line["free_bytes"], line["peer"]) == ("disk is low", "warning", 7, ["a", 1])
    assert line["timestamp"].endswith("Z")


def test_words_on_a_terminal_and_colour_unless_refused() -> None:
    for environ, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        out = Terminal()
        logs.configure(Logging(), out, environ)
        structlog.get_logger().info("listening", listener="amqp")
        assert ("\x1b[" in out.getvalue()) is coloured
        assert "listening" in out.getvalue()
        assert not out.getvalue().startswith("{")


def test_the_format_can_be_chosen() -> None:
    out = Terminal()
    logs.configure(Logging(format="json"), out)
    structlog.get_logger().info("x")
    assert written(out)[0]["event"] == "x"


def test_the_level_is_obeyed_and_can_change() -> None:
    out = io.StringIO()
    log = structlog.get_logger()
    logs.configure(Logging(level="error"), out)
    log.info("one")
    logs.configure(Logging(level="debug"), out)
    log.debug("two")
    assert [line["event"] for line in written(out)] == ["two"]


def test_libraries_obey_the_same_rules() -> None:
    out = io.StringIO()
    logs.configure(Logging(), out)
    logging.getLogger("aiohttp.server").error("failed on %s", "amqp://u:canary@h")
    line, = written(out)
    assert (line["logger"], line["level"]) == ("aiohttp.server", "error")
    assert "canary" not in out.getvalue()


def test_repeats_are_limited_per_cause_and_counted() -> None:
    clock = Clock()
    reported: list[tuple[str, int]] = []
    limit = logs.RepeatLimit(10, lambda cause, count: reported.append((cause, count)), clock)

    def passed(event: str, times: int) -> int:
        count = 0
        for _ in range(times):
            try:
                limit(None, "info", {"event": event})
                count += 1
            except structlog.DropEvent:
                pass
        return count

    assert passed("a", 1_000) == 10
    assert passed("b", 3) == 3
    assert reported == []
    clock.now = 1.0
    assert passed("b", 1) == 1
    assert reported == [("a", 990)]
    assert passed("a", 11) == 10
    limit.flush()
    assert reported == [("a", 990), ("a", 1)]
    limit.flush()
    assert len(reported) == 2


def test_many_causes_do_not_cost_memory_without_end() -> None:
    reported: list[tuple[str, int]] = []
    limit = logs.RepeatLimit(1, lambda cause, count: reported.append((cause, count)), Clock())
    for n in range(logs.CAUSES_MAX + 50):
        try:
            limit(None, "info", {"event": f"cause {n}"})
        except structlog.DropEvent:
            pass
    limit.flush()
    assert reported == [("other causes", 49)]


def test_what_was_left_out_is_said_in_the_log() -> None:
    out = io.StringIO()
    limit = logs.configure(Logging(repeats_per_second_max=2), out)
    for _ in range(500):
        structlog.get_logger().info("again")
    limit.flush()
    lines = written(out)
    assert 2 <= sum(line["event"] == "again" for line in lines) < 50
    counted = sum(line["count"] for line in lines if line["event"] == logs.SUPPRESSED)
    assert counted + sum(line["event"] == "again" for line in lines) == 500


@pytest.mark.parametrize("out", [io.StringIO(), Terminal()])
def test_a_canary_never_appears(out: io.StringIO) -> None:
    password = "canary-7f3a"
    logs.configure(Logging(level="debug"), out)
    log = structlog.get_logger()
    log.info("login", user="u", password=password, headers={"authorization": password}, uri=f"amqp://u:{password}@h")
    try:
        raise AuthenticationFailed("user 'u' was refused")
    except AuthenticationFailed:
        log.exception("refused", token=password)
    logging.getLogger("lib").exception("url %s", f"mqtt://u:{password}@h")
    assert "refused" in out.getvalue()
    assert password not in out.getvalue()
