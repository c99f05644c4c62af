"""A message that cannot be taken out of one read as a whole: it is put together here, one per channel, since channels may interrupt each other.

Its body is cut anew, into frames as large as they may be: what is stored does not depend on how small the pieces were in which it came, and
costs neither an object nor a frame for each of them.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i64_be
from mypy_extensions import i64

from trilogue.core.batch import write_u16, write_u32
from trilogue.frontends.amqp.codec import (
    BASIC,
    BODY,
    FRAME_END,
    FRAME_ERROR,
    FRAME_MAX,
    FRAME_OVERHEAD,
    PUBLISH,
    UNEXPECTED_FRAME,
    ProtocolError,
    u16,
)

HEADER_BYTES_MIN: Final = 14
CUT: Final = FRAME_MAX - FRAME_OVERHEAD


class Content:
    """`left` is what is missing of the body; -1: the content header is missing too."""

    def __init__(self, method: bytes) -> None:
        self.method: bytes = method             # the publish, as a frame
        self.channel: i64 = u16(method, 1)
        self.left: i64 = -1
        self.size: i64 = 0                      # of the body so far
        self.room: i64 = 0                      # in the frame that is being written
        self.w: BytesWriter = BytesWriter()

    def begin(self, header: bytes) -> None:
        """The content header has come, as a frame. (Its properties are somebody else's to check.)"""
        self.left = read_i64_be(header, 11)
        self.w.write(header)

    def add(self, piece: bytes) -> None:
        n: i64 = len(piece)
        if n > self.left:
            raise ProtocolError(FRAME_ERROR, f"a body {n - self.left} bytes longer than announced", PUBLISH)
        self.size += n
        at: i64 = 0
        while at < n:
            if self.room == 0:
                self.room = self.left if self.left < CUT else CUT
                self.w.append(BODY)
                write_u16(self.w, self.channel)
                write_u32(self.w, self.room)
            take: i64 = n - at
            if take > self.room:
                take = self.room
            self.w.write(piece if take == n else piece[at:at + take])
            at += take
            self.left -= take
            self.room -= take
            if self.room == 0:
                self.w.append(FRAME_END)

    def span(self) -> bytes:
        """The whole message, once nothing is left."""
        assert self.left == 0
        return self.w.getvalue()


def check_header(data: bytes, at: i64, end: i64) -> i64:
    """The content header in the frame at `at`: the size of the body that it announces, negative if that has 64 bits."""
    if end - at - 7 < HEADER_BYTES_MIN:
        raise ProtocolError(FRAME_ERROR, "a content header that is too short", PUBLISH)
    found: i64 = u16(data, at + 7)
    if found != BASIC:
        raise ProtocolError(UNEXPECTED_FRAME, f"expected content header for class {BASIC}, got one for class {found} instead", PUBLISH)
    return read_i64_be(data, at + 11)
