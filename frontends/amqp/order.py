"""The legal order of frames on a connection and its channels: what comes when it may is handed on, anything else is the peer's error.

Content is put together per channel, and checked as it begins. After a close has been sent, nothing counts but the client's agreement: what it had
sent before it knew is thrown away.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from mypy_extensions import i64
from pamqp import commands

from trilogue.core.frontend import StreamFrontend
from trilogue.frontends.amqp.codec import (
    BODY,
    CHANNEL_ERROR,
    COMMAND_INVALID,
    FRAME_ERROR,
    HEADER,
    HEARTBEAT,
    METHOD,
    PUBLISH,
    UNEXPECTED_FRAME,
    ProtocolError,
    check_method,
    encode_method,
    scan_properties,
    u16,
)
from trilogue.frontends.amqp.content import Content, check_header
from trilogue.frontends.amqp.reader import CLOSING, OPEN, OPENING, STARTING, TUNING, AmqpReader

CLOSE: Final = 10 << 16 | 50
CLOSE_OK: Final = 10 << 16 | 51
CHANNEL_OPEN: Final = 20 << 16 | 10
CHANNEL_CLOSE: Final = 20 << 16 | 40
CHANNEL_CLOSE_OK: Final = 20 << 16 | 41
REJECT: Final = 60 << 16 | 90
NACK: Final = 60 << 16 | 120

# The methods of a connection, and the one state in which each is legal. Close is legal in all of them.
LEGAL: Final = {10 << 16 | 11: STARTING, 10 << 16 | 31: TUNING, 10 << 16 | 40: OPENING, 10 << 16 | 70: OPEN}

CONTENTS_MAX: Final = 8             # so many messages' worth of bytes may wait on all channels for their rest


class AmqpOrder(AmqpReader):
    def __init__(self, frontend: StreamFrontend) -> None:
        super().__init__(frontend)
        self.contents_bytes: i64 = 0        # of bodies that are not complete

    # -------------------------------------------------------------------------------------------- what the session says

    @abstractmethod
    def obey(self, number: i64, method: i64, data: bytes) -> None:
        """Carry out a method, given as a frame; its lengths are right."""

    @abstractmethod
    def completed(self, content: Content) -> None:
        """A message is complete that was not taken out of a read as a whole."""

    @abstractmethod
    def channel_ended(self, number: i64) -> None:
        """The client agrees to the end of a channel that we closed."""

    # -------------------------------------------------------------------------------------------- frames

    def frame(self, data: bytes, at: i64, end: i64) -> None:
        kind: i64 = data[at]
        number: i64 = u16(data, at + 1)
        if self.state == CLOSING:
            if kind == METHOD and number == 0:
                self.agree(data, at, end)
        elif kind == HEARTBEAT:
            if number != 0:
                raise ProtocolError(UNEXPECTED_FRAME, f"a heartbeat on channel {number}")
            if end != at + 7:
                raise ProtocolError(FRAME_ERROR, "a heartbeat that is not empty")
        elif kind != METHOD and kind != HEADER and kind != BODY:
            raise ProtocolError(FRAME_ERROR, f"a frame of unknown type {kind}")
        elif number == 0:
            self.connection_frame(data, at, end, kind)
        elif self.state != OPEN:
            raise ProtocolError(UNEXPECTED_FRAME, f"a frame on channel {number} before the connection is open")
        else:
            self.channel_frame(data, at, end, number)

    def connection_frame(self, data: bytes, at: i64, end: i64, kind: i64) -> None:
        if kind != METHOD:
            raise ProtocolError(UNEXPECTED_FRAME, "content on channel 0")
        method = check_method(data, at + 7, end)
        if method != CLOSE and LEGAL.get(method) != self.state:
            raise ProtocolError(CHANNEL_ERROR if method >> 16 != 10 else COMMAND_INVALID, "that method is not expected on channel 0 now", method)
        self.obey(0, method, data[at:end + 1])

    def agree(self, data: bytes, at: i64, end: i64) -> None:
        """A method on channel 0 after we closed the connection. The client may have closed it at the same time."""
        try:
            method = check_method(data, at + 7, end)
        except ProtocolError:
            return
        if method == CLOSE:
            self.send(encode_method(commands.Connection.CloseOk(), 0))
        if method in (CLOSE, CLOSE_OK):
            self.close()

    def channel_frame(self, data: bytes, at: i64, end: i64, number: i64) -> None:
        kind: i64 = data[at]
        channel = self.channels.get(number)
        if channel is None:
            if kind != METHOD or check_method(data, at + 7, end) != CHANNEL_OPEN:
                raise ProtocolError(CHANNEL_ERROR, f"expected 'channel.open' on channel {number}")
        elif channel.closing:
            if kind == METHOD:
                self.agree_channel(data, at, end, number)
            return
        content = self.contents.get(number)
        if content is not None:
            self.content_frame(data, at, end, content)
            return
        if kind != METHOD:
            raise ProtocolError(UNEXPECTED_FRAME, "expected method frame, got non method frame instead")
        method = check_method(data, at + 7, end)
        if method >> 16 == 10:
            raise ProtocolError(COMMAND_INVALID, f"a method of the connection on channel {number}", method)
        if method == PUBLISH:
            self.contents[number] = Content(data[at:end + 1])
        elif method in (REJECT, NACK) and data[at + 11] & 0x80:
            self.channel_error(number, 406, "unknown delivery tag beyond 2^63", int(method))     # no such tag is ever given
        else:
            self.obey(number, method, data[at:end + 1])

    def agree_channel(self, data: bytes, at: i64, end: i64, number: i64) -> None:
        """A method on a channel that we closed. The client may have closed it at the same time."""
        try:
            method = check_method(data, at + 7, end)
        except ProtocolError:
            return
        if method == CHANNEL_CLOSE:
            self.send(encode_method(commands.Channel.CloseOk(), number))
        elif method == CHANNEL_CLOSE_OK:
            self.channel_ended(number)

    # -------------------------------------------------------------------------------------------- content

    def content_frame(self, data: bytes, at: i64, end: i64, content: Content) -> None:
        kind: i64 = data[at]
        if content.left < 0:
            if kind != HEADER:
                raise ProtocolError(UNEXPECTED_FRAME, "expected content header for class 60, got non content header frame instead", PUBLISH)
            self.content_begins(data, at, end, content)
        else:
            if kind != BODY:
                raise ProtocolError(UNEXPECTED_FRAME, "expected content body, got non content body frame instead", PUBLISH)
            content.add(data[at + 7:end])
            self.contents_bytes += end - at - 7
        if content.left == 0:
            self.drop_content(content.channel)
            self.completed(content)
        elif self.context.broker.limits.message_bytes_max >= 0 and self.contents_bytes > self.context.broker.limits.message_bytes_max * CONTENTS_MAX:
            raise ProtocolError(506, f"{self.contents_bytes} bytes of incomplete messages", PUBLISH)

    def content_begins(self, data: bytes, at: i64, end: i64, content: Content) -> None:
        size = check_header(data, at, end)
        scan_properties(data, at + 19, end, self.properties)
        self.head = -1
        limit: i64 = self.context.broker.limits.message_bytes_max
        if size < 0 or size > limit >= 0:
            said = f"message size {size}" if size >= 0 else "message size beyond 2^63"
            self.channel_error(content.channel, 406, f"{said} is larger than configured max size {limit}", PUBLISH)
        else:
            content.begin(data[at:end + 1])

    def drop_content(self, number: i64) -> None:
        content = self.contents.pop(number, None)
        if content is not None:
            self.contents_bytes -= content.size
