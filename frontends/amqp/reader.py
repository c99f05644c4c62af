"""An AMQP connection's input: from reads to frames, and from frames to runs of messages and ranges of acknowledgements.

* A read is parsed where it lies. Only what straddles two reads is joined, once; how the bytes were cut never shows.
* Consecutive publishes with the same method are taken out as one run, consecutive acknowledgements as one range, and each is handed on before
  the next frame is looked at: everything happens in the order in which it came.
* Nothing is looked at while the connection waits for the disk or for a password to be checked. What comes in meanwhile is kept, up to a limit.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from trilogue.core.decoding import same
from trilogue.core.errors import BrokerError
from trilogue.core.frontend import StreamFrontend
from trilogue.frontends.amqp.channel import AmqpLink, Channel
from trilogue.frontends.amqp.codec import (
    ACK,
    BASIC,
    BODY,
    FRAME_END,
    FRAME_ERROR,
    FRAME_OVERHEAD,
    HEADER,
    METHOD,
    PUBLISH,
    LostSync,
    Properties,
    ProtocolError,
    scan_properties,
    u16,
)
from trilogue.frontends.amqp.content import HEADER_BYTES_MIN, Content
from trilogue.frontends.amqp.errors import reply_code
from trilogue.frontends.amqp.fields import u32

# States of a connection, in their order.
NEW: Final = 0              # nothing but the protocol header is legal
STARTING: Final = 1         # connection.start is out
AUTHENTICATING: Final = 2   # the password is being checked
TUNING: Final = 3
OPENING: Final = 4
OPEN: Final = 5
CLOSING: Final = 6          # connection.close is out, and nothing counts any more but the client's agreement

FRAME_MAX_BEFORE_LOGIN: Final = 8_192
ACK_FRAME: Final = 13 + FRAME_OVERHEAD
KEPT_BYTES_MAX: Final = 1 << 20     # what is read ahead of a connection that waits
CHUNK_COST: Final = 64              # what a kept read costs beside its bytes
SMALL_CHUNK: Final = 512
GLUED_CHUNK: Final = 4_096


class AmqpReader(AmqpLink):
    def __init__(self, frontend: StreamFrontend) -> None:
        super().__init__(frontend)
        self.state: i64 = NEW
        self.channels: dict[int, Channel] = {}
        self.contents: dict[int, Content] = {}  # messages that are being put together, by channel
        self.waiting: bool = False              # for the disk, before anything else is looked at
        self.deaf: bool = False                 # the frames' order is lost: whatever comes is thrown away
        self.heard: bool = True                 # anything, since the last heartbeat was sent
        self.chunks: list[bytes] = []           # what was read and not looked at
        self.at: i64 = 0                        # where the first of them goes on
        self.next: i64 = 0                      # and the second: what is before was joined to the first
        self.have: i64 = 0                      # bytes in them from there on
        self.need: i64 = FRAME_OVERHEAD         # so many, at least, before it is worth to look again
        self.parsing: bool = False
        self.full: bool = False                 # so much is kept that nothing more is read
        self.properties: Properties = Properties()
        self.head: i64 = -1                     # the content header, in this read, that `properties` are of
        self.head_size: i64 = 0

    # -------------------------------------------------------------------------------------------- what the session says

    @abstractmethod
    def greet(self, header: bytes) -> None:
        """The first eight bytes."""

    @abstractmethod
    def frame(self, data: bytes, at: i64, end: i64) -> None:
        """Any frame that is not part of a run or a range. Its length and its end are right."""

    @abstractmethod
    def emit(self, data: bytes, at: i64, spans: list[bytes], size: i64, key: i64, expiration: bytes) -> None:
        """A run of messages that share the publish method at `at`. `key`: priority and persistence."""

    @abstractmethod
    def ack_range(self, number: i64, lo: i64, hi: i64) -> None: ...

    @abstractmethod
    def ack_upto(self, number: i64, tag: i64) -> None: ...

    @abstractmethod
    def fail(self, code: int, text: str, method: int) -> None:
        """Close the connection with a reply code."""

    # -------------------------------------------------------------------------------------------- reads

    def received(self, data: bytes) -> None:
        self.heard = True
        if self.deaf:
            return
        chunks = self.chunks
        if chunks and len(data) < SMALL_CHUNK and len(chunks[-1]) < GLUED_CHUNK:
            chunks[-1] += data      # or a client that sends byte by byte would cost us an object for each
        else:
            chunks.append(data)
        self.have += len(data)
        if not self.stopped():
            self.go_on()
        elif self.have + CHUNK_COST * len(chunks) > KEPT_BYTES_MAX and not self.full:
            self.full = True
            if self.reading:
                self.reading = False
                self.transport.pause_reading()

    def adjust_reading(self) -> None:
        if not self.full:
            super().adjust_reading()

    def stopped(self) -> bool:
        return self.waiting or self.closed or self.deaf or self.state == AUTHENTICATING

    def go_on(self) -> None:
        """Look at what has come in."""
        if self.parsing:
            return              # whoever is at it goes on
        self.parsing = True
        try:
            while self.have >= self.need and not self.stopped():
                data = self.gather()
                at = self.parse(data, self.at)
                self.have -= at - self.at
                self.at = at
                self.let_go(data)
        finally:
            self.parsing = False
        if self.closed or self.deaf:
            self.chunks = []
            self.at = 0
            self.next = 0
            self.have = 0
        if self.full and not self.stopped():
            self.full = False
            self.adjust_reading()

    def gather(self) -> bytes:
        """The first chunk, made long enough for the next step. Only what straddles is joined; the rest of the next chunk stays where it is."""
        chunks = self.chunks
        first = chunks[0]
        have: i64 = len(first) - self.at
        if have >= self.need:
            return first
        parts = [first[self.at:]]
        k: i64 = 0
        stop: i64 = 0
        while have < self.need:
            k += 1
            begin: i64 = self.next if k == 1 else 0
            stop = begin + self.need - have
            if stop > len(chunks[k]):
                stop = len(chunks[k])
            parts.append(chunks[k][begin:stop])
            have += stop - begin
        if stop < len(chunks[k]):
            self.next = stop
            del chunks[1:k]
        else:
            self.next = 0
            del chunks[1:k + 1]
        data = b"".join(parts)
        chunks[0] = data
        self.at = 0
        return data

    def let_go(self, data: bytes) -> None:
        """Keep no more of the first chunk than is still needed."""
        if self.at >= len(data):
            del self.chunks[0]
            self.at = self.next
            self.next = 0
        elif self.at and not self.stopped():
            self.chunks[0] = data[self.at:]
            self.at = 0

    # -------------------------------------------------------------------------------------------- frames

    def parse(self, data: bytes, at: i64) -> i64:
        """Everything complete in `data` from `at` on; returns how far that was, and sets `need`."""
        n: i64 = len(data)
        self.head = -1
        self.need = FRAME_OVERHEAD
        if self.state == NEW:
            self.greet(data[at:at + 8])
            at += 8
        while n - at >= FRAME_OVERHEAD and not self.stopped():
            try:
                stop = self.step(data, at, n)
            except ProtocolError as broken:     # names of their own: compiled, a name has one type
                self.deaf = isinstance(broken, LostSync)
                self.fail(broken.code, broken.text, broken.method)
                stop = n if self.deaf else at + FRAME_OVERHEAD + u32(data, at + 3)
            except BrokerError as refused:
                self.fail(reply_code(refused), str(refused), 0)
                stop = at + FRAME_OVERHEAD + u32(data, at + 3)
            except (RecursionError, MemoryError):
                self.fail(FRAME_ERROR, "the frame is too much to handle", 0)
                stop = at + FRAME_OVERHEAD + u32(data, at + 3)
            if stop == at:
                break
            at = stop
        return at

    def step(self, data: bytes, at: i64, n: i64) -> i64:
        """One frame, or as many as go together; returns where they end. At `at` itself: something is missing."""
        size: i64 = u32(data, at + 3)
        limit: i64 = self.frame_max if self.state >= OPENING else FRAME_MAX_BEFORE_LOGIN
        # Like RabbitMQ, bear with clients that do not count the frame's own eight bytes.
        if size > limit:
            raise LostSync(FRAME_ERROR, f"frame of {size} bytes is larger than the maximum of {limit}")
        end: i64 = at + 7 + size
        if end >= n:
            self.need = size + FRAME_OVERHEAD
            return at
        if data[end] != FRAME_END:
            raise LostSync(FRAME_ERROR, f"a frame ends with {data[end]}")
        if data[at] == METHOD and self.state == OPEN and size >= 9:
            method: i64 = i64(read_i32_be(data, at + 7))
            if method == PUBLISH:
                stop = self.take_run(data, at, size)
                if stop > at or self.need > FRAME_OVERHEAD:
                    return stop
            elif method == ACK and size == 13:
                return self.take_acks(data, at, n)
        self.frame(data, at, end)
        return end + 1

    def take_run(self, data: bytes, first: i64, size: i64) -> i64:
        """The messages from `first` on that share its publish method, as one run; returns where they end. At `first` itself: it is not complete
        (then `need` says what it takes), or is not plain enough. Whatever is strange ends a run, and is then looked at frame by frame."""
        n: i64 = len(data)
        number: i64 = u16(data, first + 1)
        if not self.is_plain(data, first, size, number):
            return first
        limit: i64 = self.frame_max
        most: i64 = self.context.broker.limits.message_bytes_max
        if most < 0 or most > limit:
            most = limit
        properties = self.properties
        spans: list[bytes] = []
        total: i64 = 0
        key: i64 = -1
        expiration = b""
        need: i64 = 0
        at: i64 = first
        while True:
            h: i64 = at + FRAME_OVERHEAD + size     # the content header
            if n - h < FRAME_OVERHEAD:
                need = h + FRAME_OVERHEAD - at
                break
            h_size: i64 = u32(data, h + 3)
            o: i64 = h + FRAME_OVERHEAD + h_size    # what follows it
            if data[h] != HEADER or u16(data, h + 1) != number or h_size < HEADER_BYTES_MIN or h_size > limit:
                break
            if o > n:
                need = o - at
                break
            want: i64 = read_i64_be(data, h + 11)
            if data[o - 1] != FRAME_END or u16(data, h + 7) != BASIC or want < 0 or want > most:
                break
            if want > 0:
                if n - o < FRAME_OVERHEAD:
                    need = o + FRAME_OVERHEAD - at
                    break
                if data[o] != BODY or u16(data, o + 1) != number or u32(data, o + 3) != want:
                    break
                o += FRAME_OVERHEAD + want
                if o > n:
                    need = o - at
                    break
                if data[o - 1] != FRAME_END:
                    break
            # The same content header as before needs no second look.
            if self.head < 0 or h_size != self.head_size or not same(data, self.head + 19, h + 19, h_size - 12):
                if not self.look_at(data, h, h_size):
                    break
            if properties.special:
                break
            kind: i64 = properties.priority << 1 | (1 if properties.persistent else 0)
            if not spans:
                key = kind
                expiration = properties.expiration
            elif kind != key or properties.expiration != expiration:
                break
            spans.append(data[h:o])
            total += o - h
            at = o
            if n - at < FRAME_OVERHEAD + size or not same(data, first, at, FRAME_OVERHEAD + size):
                break
        if spans:
            self.emit(data, first, spans, total, key, expiration)
        elif need:
            self.need = need
        return at

    def is_plain(self, data: bytes, at: i64, size: i64, number: i64) -> bool:
        """May the publish at `at` begin a run: are its arguments whole, and is its channel open and between two messages?"""
        end: i64 = at + 7 + size
        p: i64 = at + 13                    # after class, method and the reserved field
        p += 1 + i64(data[p])
        if p >= end:
            return False
        p += 1 + i64(data[p])
        if p != end - 1:
            return False
        channel = self.channels.get(number)
        return channel is not None and not channel.closing and (not self.contents or number not in self.contents)

    def look_at(self, data: bytes, h: i64, h_size: i64) -> bool:
        """Scan the properties of the content header at `h`; false if they are wrong."""
        self.head = -1
        try:
            scan_properties(data, h + 19, h + 7 + h_size, self.properties)
        except ProtocolError:
            return False
        self.head = h
        self.head_size = h_size
        return True

    def take_acks(self, data: bytes, first: i64, n: i64) -> i64:
        """The acknowledgements from `first` on, as far as their tags are neighbours; returns where they end."""
        number: i64 = u16(data, first + 1)
        lo: i64 = read_i64_be(data, first + 11)
        at: i64 = first + ACK_FRAME
        if data[first + 19] & 1:
            self.ack_upto(number, lo)
            return at
        hi: i64 = lo
        while (n - at >= ACK_FRAME and same(data, first, at, 11) and data[at + 19] & 1 == 0 and data[at + 20] == FRAME_END
               and read_i64_be(data, at + 11) == hi + 1):
            hi += 1
            at += ACK_FRAME
        self.ack_range(number, lo, hi)
        return at
