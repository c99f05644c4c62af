from __future__ import annotations

import cbor2
from hypothesis import given
from hypothesis import strategies as st

from trilogue.core.message import ORIGIN_AMQP, ORIGIN_NATIVE, native_span
from trilogue.core.ports import Lens
from trilogue.routing.lens import Lenses


class Fixed(Lens):
    def headers(self, origin: int, span: bytes) -> dict[str, object]:
        return {"origin": int(origin)}

    def is_empty(self, origin: int, span: bytes) -> bool:
        return span == b""

    def keys(self, origin: int, span: bytes) -> list[bytes]:
        return [span]

    def identity(self, origin: int, span: bytes, header: str) -> bytes:
        return span + header.encode()


def test_headers_of_our_own_encoding() -> None:
    span = native_span(cbor2.dumps({"headers": {"a": 1, 2: "not a name"}, "other": True}), b"body")
    assert Lenses().headers(ORIGIN_NATIVE, span) == {"a": 1}


def test_no_fields_no_headers() -> None:
    assert Lenses().headers(ORIGIN_NATIVE, native_span(b"", b"body")) == {}
    assert Lenses().headers(ORIGIN_NATIVE, native_span(cbor2.dumps({"headers": 7}), b"")) == {}
    assert Lenses().headers(ORIGIN_NATIVE, native_span(cbor2.dumps([1]), b"")) == {}


def test_without_a_body() -> None:
    lenses = Lenses()
    assert lenses.is_empty(ORIGIN_NATIVE, native_span(cbor2.dumps({"a": 1}), b""))
    assert not lenses.is_empty(ORIGIN_NATIVE, native_span(b"", b"x"))
    assert not lenses.is_empty(ORIGIN_NATIVE, b"\xff\xff\xff\xff")


def test_a_frontend_brings_its_own() -> None:
    lenses = Lenses()
    assert lenses.headers(ORIGIN_AMQP, b"") == {}
    assert not lenses.is_empty(ORIGIN_AMQP, b"")
    assert lenses.keys(ORIGIN_AMQP, b"k") == []
    assert lenses.identity(ORIGIN_AMQP, b"i", "") == b""
    lenses.add(ORIGIN_AMQP, Fixed())
    assert lenses.headers(ORIGIN_AMQP, b"") == {"origin": ORIGIN_AMQP}
    assert lenses.is_empty(ORIGIN_AMQP, b"")
    assert lenses.keys(ORIGIN_AMQP, b"k") == [b"k"]
    assert lenses.identity(ORIGIN_AMQP, b"i", "d") == b"id"


@given(st.binary(max_size=200), st.integers(0, 220))
def test_bytes_of_a_peer_are_never_an_error(data: bytes, length: int) -> None:
    lenses = Lenses()
    for span in (data, length.to_bytes(4, "big") + data):
        assert isinstance(lenses.headers(ORIGIN_NATIVE, span), dict)
        lenses.is_empty(ORIGIN_NATIVE, span)


def test_nesting_without_end() -> None:
    assert Lenses().headers(ORIGIN_NATIVE, native_span(b"\xa1\x67headers" + b"\x81" * 100_000, b"")) == {}
