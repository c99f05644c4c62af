"""A message that comes in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame, header

from tests.frontends.amqp.host import unmarshal
from trilogue.frontends.amqp.codec import FRAME_MAX, ProtocolError, body_of, body_size
from trilogue.frontends.amqp.content import Content, check_header

METHOD = frame.marshal(commands.Basic.Publish(routing_key="q"), 513)


def head(size: int) -> bytes:
    return frame.marshal(header.ContentHeader(body_size=size, properties=commands.Basic.Properties(message_id="m")), 513)


def content(size: int) -> Content:
    made = Content(METHOD)
    made.begin(head(size))
    return made


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_pieces_become_one_frame(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    made = content(len(whole))
    for piece in pieces:
        assert made.left == len(whole) - made.size
        made.add(piece)
    span = made.span()
    assert body_of(span) == whole
    assert body_size(span) == len(whole)
    assert len(span) == len(head(len(whole))) + (len(whole) + 8 if whole else 0)


@pytest.mark.parametrize("piece", [1_000, FRAME_MAX - 8, FRAME_MAX, 300_001])
def test_large_bodies_become_frames_as_large_as_they_may_be(piece: int) -> None:
    whole = bytes(range(256)) * 1_200
    made = content(len(whole))
    for at in range(0, len(whole), piece):
        made.add(whole[at:at + piece])
    span = made.span()
    assert body_of(span) == whole
    at, sizes = 0, []
    while at < len(span):
        used, channel, _ = unmarshal(span[at:])
        assert channel == 513
        sizes.append(used)
        at += used
    assert sizes[1:] == [FRAME_MAX, FRAME_MAX, len(whole) - 2 * (FRAME_MAX - 8) + 8]


def test_a_body_is_not_longer_than_announced() -> None:
    made = content(5)
    made.add(b"abc")
    with pytest.raises(ProtocolError, match="1 bytes longer") as caught:
        made.add(b"def")
    assert caught.value.code == 501


def test_what_a_header_announces() -> None:
    data = b"xx" + head(77)
    assert check_header(data, 2, len(data) - 1) == 77
    assert check_header(head(0)[:11] + b"\xff" * 8 + head(0)[19:], 0, len(head(0)) - 1) < 0
