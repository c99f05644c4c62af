"""Records from bytes: the counterpart of `core/record.py`. Whatever contradicts itself is `Corrupt`.

Messages of one run differ only in their offset delta and their span, so a head that equals the one before is compared, not parsed.
"""

from __future__ import annotations

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from trilogue.core.batch import Header
from trilogue.core.errors import Corrupt
from trilogue.core.message import Run
from trilogue.core.record import (
    BY_ROUTE,
    CARRIED,
    DELAYED,
    DUE,
    HANDED_IN,
    HANDED_OVER,
    HEAD_AT,
    MESSAGE,
    METADATA,
    PROGRESS,
    QUEUE_GONE,
    QUEUE_KEEPS,
    RELEASED,
    REMOVED,
    RETURNED,
    REWOUND,
    ROUTE,
    SENT_AGAIN,
    STATE,
    Carried,
    Delayed,
    Due,
    HandedIn,
    HandedOver,
    Letter,
    Messages,
    Metadata,
    Number,
    Progress,
    QueueGone,
    QueueKeeps,
    Record,
    Released,
    Removed,
    Returned,
    Rewound,
    RouteDefined,
    SentAgain,
    State,
)


class Cursor:
    """A length-checked reader over one record; `Corrupt` on any overrun."""

    def __init__(self, data: bytes, at: i64, end: i64) -> None:
        self.data: bytes = data
        self.at: i64 = at
        self.end: i64 = end

    def take(self, n: i64) -> i64:
        at = self.at
        if n < 0 or at + n > self.end:
            raise Corrupt("a record's field overruns the record")
        self.at = at + n
        return at

    def u8(self) -> i64:
        return self.data[self.take(1)]

    def u16(self) -> i64:
        return i64(read_i16_be(self.data, self.take(2))) & 0xFFFF

    def u32(self) -> i64:
        return i64(read_i32_be(self.data, self.take(4))) & 0xFFFFFFFF

    def long(self) -> i64:
        return read_i64_be(self.data, self.take(8))

    def blob(self, n: i64) -> bytes:
        at = self.take(n)
        return self.data[at:at + n]

    def rest(self) -> bytes:
        return self.blob(self.end - self.at)

    def i64_list(self, n: i64) -> list[int]:
        if n * 8 > self.end - self.at:
            raise Corrupt("a record's list overruns the record")
        out: list[int] = []
        for _ in range(n):
            out.append(self.long())
        return out

    def ranges(self, lo: list[int], hi: list[int]) -> None:
        n = self.u32()
        if n * 16 > self.end - self.at:
            raise Corrupt("a record's list overruns the record")
        for _ in range(n):
            lo.append(self.long())
            hi.append(self.long())

    def number(self) -> Number:
        epoch = self.u32()
        offset = self.long()
        return Number(epoch, offset, self.u32())

    def numbers(self) -> list[Number]:
        out: list[Number] = []
        for _ in range(self.u32()):
            out.append(self.number())
        return out

    def message(self, targets: list[int]) -> Run:
        """The counterpart of `encode_message`; fills `targets`."""
        time_ms = self.long()
        targets.extend(self.i64_list(self.u32()))
        origin = self.u8()
        priority = self.u8()
        flags = self.u8()
        deadline = self.long()
        exchange = self.blob(self.u8())
        routing_key = self.blob(self.u16())
        key = self.blob(self.u16())
        notes = self.blob(self.u16())
        span = self.blob(self.u32())
        run = Run(exchange, routing_key, origin, [span], len(span), flags, priority, -1, key, notes)
        run.deadline_ms = deadline
        run.time_ms = time_ms
        return run


class Pending:
    """The run that is being put together while equal heads follow each other."""

    def __init__(self) -> None:
        self.head_at: i64 = -1
        self.head_len: i64 = 0
        self.next: i64 = -1
        self.record: Messages | None = None


def decode(header: Header, records: bytes) -> list[Record]:
    """All records of a verified batch (`records`: what follows its header, decompressed). Equal neighbours become one `Messages`."""
    out: list[Record] = []
    at: i64 = 0
    n: i64 = len(records)
    pending = Pending()
    while at < n:
        if n - at < 13:
            raise Corrupt("a record is cut short")
        length: i64 = i64(read_i32_be(records, at)) & 0xFFFFFFFF
        end: i64 = at + 4 + length
        if length < 9 or end > n:
            raise Corrupt("a record's length overruns the batch")
        offset: i64 = header.base + (i64(read_i32_be(records, at + 4)) & 0xFFFFFFFF)
        head_at: i64 = at + HEAD_AT
        if records[head_at] == MESSAGE:
            add_message(out, pending, records, head_at, end, offset, header.time_ms)
        else:
            pending.head_at = -1
            record = decode_one(records, head_at, end, header.time_ms)
            record.offset = offset
            out.append(record)
        at = end
    return out


def add_message(out: list[Record], pending: Pending, data: bytes, head_at: i64, end: i64, offset: i64, batch_time_ms: i64) -> None:
    k: i64 = pending.head_len
    record = pending.record
    if pending.head_at >= 0 and record is not None and offset == pending.next and head_at + k <= end and same(data, pending.head_at, head_at, k):
        span = data[head_at + k:end]
        record.run.spans.append(span)
        record.run.size += len(span)
        pending.next = offset + 1
        return
    c = Cursor(data, head_at + 1, end)
    time_ms = batch_time_ms + c.u32()
    origin = c.u8()
    priority = c.u8()
    flags = c.u8()
    deadline = c.long()
    n = c.u8()
    route: i64 = -1
    targets: list[int] = []
    if n == BY_ROUTE:
        route = c.long()
    else:
        targets = c.i64_list(n)
    exchange = c.blob(c.u8())
    routing_key = c.blob(c.u16())
    key = c.blob(c.u16())
    notes = c.blob(c.u16())
    pending.head_at = head_at
    pending.head_len = c.at - head_at
    span = c.rest()
    run = Run(exchange, routing_key, origin, [span], len(span), flags, priority, -1, key, notes)
    run.deadline_ms = deadline
    run.time_ms = time_ms
    run.offset = offset
    messages = Messages(run, targets, route)
    messages.offset = offset
    pending.record = messages
    pending.next = offset + 1
    out.append(messages)


def decode_one(data: bytes, head_at: i64, end: i64, batch_time_ms: i64) -> Record:
    kind: i64 = data[head_at]
    c = Cursor(data, head_at + 5, end)
    lo: list[int] = []
    hi: list[int] = []
    targets: list[int] = []
    if kind == PROGRESS:
        target = c.long()
        delivered_to = c.long()
        size = c.long()
        c.ranges(lo, hi)
        return Progress(target, delivered_to, size, lo, hi)
    if kind == ROUTE:
        return RouteDefined(c.i64_list(c.u32()))
    if kind == RETURNED:
        target = c.long()
        counted = c.u8() == 1
        c.ranges(lo, hi)
        return Returned(target, counted, lo, hi)
    if kind == REMOVED:
        target = c.long()
        reason = c.u8()
        size = c.long()
        source = c.long()
        c.ranges(lo, hi)
        return Removed(target, reason, size, lo, hi, decode_letters(c), source)
    if kind == HANDED_IN:
        sender = c.long()
        number = c.number()
        accepted = c.u8() == 1
        run = c.message(targets)
        return HandedIn(sender, number, accepted, run, targets)
    if kind == CARRIED:
        return decode_carried(c)
    return decode_rare(kind, c, targets)


def decode_rare(kind: i64, c: Cursor, targets: list[int]) -> Record:
    if kind == QUEUE_GONE:
        return QueueGone(c.long())
    if kind == HANDED_OVER:
        partition = c.long()
        number = c.number()
        return HandedOver(partition, number, c.numbers())
    if kind == SENT_AGAIN:
        partition = c.long()
        return SentAgain(partition, c.numbers())
    if kind == DUE:
        source = c.long()
        return Due(source, decode_letters(c))
    if kind == METADATA:
        return Metadata(c.rest())
    if kind == DELAYED:
        due = c.long()
        return Delayed(due, c.message(targets))
    if kind == RELEASED:
        target = c.long()
        return Released(target, c.long())
    if kind == STATE:
        key = c.blob(c.u16())
        return State(key, c.rest())
    if kind == QUEUE_KEEPS:
        queue = c.long()
        return QueueKeeps(queue, c.u8() == 1)
    if kind == REWOUND:
        target = c.long()
        return Rewound(target, c.long())
    raise Corrupt(f"record type {kind} is not known to this version")


def decode_letters(c: Cursor) -> list[Letter]:
    letters: list[Letter] = []
    for _ in range(c.u16()):
        partition = c.long()
        targets = c.i64_list(c.u32())
        exchange = c.blob(c.u8())
        routing_key = c.blob(c.u16())
        c.blob(c.u16())
        letters.append(Letter(partition, targets, exchange, routing_key, c.blob(c.u16())))
    return letters


def decode_carried(c: Cursor) -> Carried:
    original = c.long()
    owners: list[int] = []
    ordinals: list[int] = []
    for _ in range(c.u32()):
        owners.append(c.long())
        ordinals.append(c.long())
    targets: list[int] = []
    return Carried(original, owners, ordinals, c.message(targets))


def same(data: bytes, a: i64, b: i64, n: i64) -> bool:
    """Are the n bytes at a and at b equal? Words first; no slice is made."""
    stop: i64 = a + n - 8
    while a <= stop:
        if read_i64_be(data, a) != read_i64_be(data, b):
            return False
        a += 8
        b += 8
    stop += 8
    while a < stop:
        if data[a] != data[b]:
            return False
        a += 1
        b += 1
    return True

