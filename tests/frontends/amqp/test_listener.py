from __future__ import annotations

from pamqp import commands

from trilogue.core.message import ORIGIN_AMQP
from trilogue.frontends.amqp.codec import make_span
from trilogue.frontends.amqp.listener import AmqpLens

LENS = AmqpLens()


def span(content: bytes = b"", **properties: object) -> bytes:
    return make_span(commands.Basic.Properties(**properties).marshal(), content, 131_072)  # type: ignore[arg-type]


def test_headers_and_bodies() -> None:
    assert LENS.headers(ORIGIN_AMQP, span(headers={"a": 1})) == {"a": 1}
    assert LENS.headers(ORIGIN_AMQP, span()) == {}
    assert LENS.is_empty(ORIGIN_AMQP, span())
    assert not LENS.is_empty(ORIGIN_AMQP, span(b"x"))


def test_further_keys() -> None:
    assert LENS.keys(ORIGIN_AMQP, span(headers={"CC": ["a", "ü"]})) == [b"a", "ü".encode()]
    assert LENS.keys(ORIGIN_AMQP, span()) == []


def test_identity() -> None:
    assert LENS.identity(ORIGIN_AMQP, span(), "") == b""
    assert LENS.identity(ORIGIN_AMQP, span(message_id="m"), "") == b"m"
    assert LENS.identity(ORIGIN_AMQP, span(message_id="m", headers={"x-deduplication-header": 5}), "") == b"5"
    assert LENS.identity(ORIGIN_AMQP, span(message_id="m", headers={"x-deduplication-header": 5, "own": "o"}), "own") == b"o"
    assert LENS.identity(ORIGIN_AMQP, span(message_id="m", headers={"x-deduplication-header": 5}), "own") == b"m"
