"""The records: every change of durable state, as objects and as bytes.

A record is `length u32 | offset delta u32 | type u8 | time delta u32 | …`, where the length counts what follows it. Messages of one run
differ only in their offset delta and their span, so that everything between (the *head*) is encoded once per run and compared, not
parsed, when the log is read back.

A *target* is `queue id << 8 | priority level`: one chain of messages in one queue.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i64_be
from mypy_extensions import i64

from trilogue.core.batch import write_u16, write_u32
from trilogue.core.message import Run, encode_address

MESSAGE: Final = 1
ROUTE: Final = 2
PROGRESS: Final = 3
RETURNED: Final = 4
REMOVED: Final = 5
QUEUE_GONE: Final = 6
HANDED_IN: Final = 7
HANDED_OVER: Final = 8
CARRIED: Final = 9
METADATA: Final = 10
DELAYED: Final = 11
RELEASED: Final = 12
STATE: Final = 13
QUEUE_KEEPS: Final = 14
REWOUND: Final = 15
SENT_AGAIN: Final = 16
DUE: Final = 17

HEAD_AT: Final = 8              # of a record: after length and offset delta
BY_ROUTE: Final = 255           # number of targets: an interned route follows
TARGETS_INLINE_MAX: Final = 4

REASON_EXPIRED: Final = 1
REASON_OVERFLOW: Final = 2
REASON_REJECTED: Final = 3
REASON_DELIVERY_LIMIT: Final = 4
REASON_PURGED: Final = 5


class Record:
    """Base of all records. `offset` is set when it is appended or read."""

    kind: i64
    offset: i64

    def __init__(self, kind: i64) -> None:
        self.kind = kind
        self.offset = -1

    def encode(self, w: BytesWriter) -> None:
        """Write what follows type and time delta."""
        raise AssertionError("each record encodes itself")

    def span_count(self) -> i64:
        """How many offsets the record takes."""
        return 1


class Messages(Record):
    """A run of messages for a list of targets (none in a topic), or by an interned route."""

    def __init__(self, run: Run, targets: list[int], route: i64 = -1) -> None:
        super().__init__(MESSAGE)
        self.run: Run = run
        self.targets: list[int] = targets
        self.route: i64 = route             # offset of the record that defined it; -1: targets are in line

    def span_count(self) -> i64:
        return len(self.run.spans)


class RouteDefined(Record):
    """The targets that later messages of this segment name by this record's offset."""

    def __init__(self, targets: list[int]) -> None:
        super().__init__(ROUTE)
        self.targets: list[int] = targets

    def encode(self, w: BytesWriter) -> None:
        write_u32(w, len(self.targets))
        for target in self.targets:
            write_i64_be(w, target)


class Progress(Record):
    """What consumers of one chain did since the last flush: delivered up to, and settled (ranges of ordinals, their bytes)."""

    def __init__(self, target: i64, delivered_to: i64, size: i64, lo: list[int], hi: list[int]) -> None:
        super().__init__(PROGRESS)
        self.target: i64 = target
        self.delivered_to: i64 = delivered_to       # -1: unchanged
        self.size: i64 = size
        self.lo: list[int] = lo
        self.hi: list[int] = hi

    def encode(self, w: BytesWriter) -> None:
        write_i64_be(w, self.target)
        write_i64_be(w, self.delivered_to)
        write_i64_be(w, self.size)
        encode_ranges(w, self.lo, self.hi)


class Returned(Record):
    """Messages that were delivered and came back. `counted` raises their delivery count."""

    def __init__(self, target: i64, counted: bool, lo: list[int], hi: list[int]) -> None:
        super().__init__(RETURNED)
        self.target: i64 = target
        self.counted: bool = counted
        self.lo: list[int] = lo
        self.hi: list[int] = hi

    def encode(self, w: BytesWriter) -> None:
        write_i64_be(w, self.target)
        w.append(1 if self.counted else 0)
        encode_ranges(w, self.lo, self.hi)


class Removed(Record):
    """The leader took messages out of a chain. With `letters` (then there is one range, and `source` is the offset of its first message)
    each message that the queue still owns becomes a hand-off for each letter."""

    def __init__(self, target: i64, reason: i64, size: i64, lo: list[int], hi: list[int], letters: list[Letter], source: i64) -> None:
        super().__init__(REMOVED)
        self.target: i64 = target
        self.reason: i64 = reason
        self.size: i64 = size
        self.lo: list[int] = lo
        self.hi: list[int] = hi
        self.letters: list[Letter] = letters
        self.source: i64 = source
        self.run: Run | None = None         # in memory only: the run that the messages are in,
        self.run_at: i64 = 0                # and where they begin in it

    def encode(self, w: BytesWriter) -> None:
        write_i64_be(w, self.target)
        w.append(int(self.reason))
        write_i64_be(w, self.size)
        write_i64_be(w, self.source)
        encode_ranges(w, self.lo, self.hi)
        encode_letters(w, self.letters)


class Letter:
    """Where a removed or delayed message goes: a partition, the targets there, the address and notes it arrives with."""

    def __init__(self, partition: i64, targets: list[int], exchange: bytes, routing_key: bytes, notes: bytes) -> None:
        self.partition: i64 = partition
        self.targets: list[int] = targets
        self.exchange: bytes = exchange
        self.routing_key: bytes = routing_key
        self.notes: bytes = notes


class QueueGone(Record):
    def __init__(self, queue: i64) -> None:
        super().__init__(QUEUE_GONE)
        self.queue: i64 = queue

    def encode(self, w: BytesWriter) -> None:
        write_i64_be(w, self.queue)


class Number:
    """The number of a hand-off: leader epoch and offset of the record that made it, and its index there (RULES 11)."""

    def __init__(self, epoch: i64, offset: i64, index: i64) -> None:
        self.epoch: i64 = epoch
        self.offset: i64 = offset
        self.index: i64 = index

    def encode(self, w: BytesWriter) -> None:
        write_u32(w, self.epoch)
        write_i64_be(w, self.offset)
        write_u32(w, self.index)

    def same(self, other: Number) -> bool:
        return self.offset == other.offset and self.index == other.index and self.epoch == other.epoch

    def above(self, other: Number) -> bool:
        if self.epoch != other.epoch:
            return self.epoch > other.epoch
        if self.offset != other.offset:
            return self.offset > other.offset
        return self.index > other.index


def any_same(numbers: list[Number], number: Number) -> bool:
    for other in numbers:
        if other.same(number):
            return True
    return False


class HandedIn(Record):
    """A message that came from another partition. `accepted` false: refused, only the mark moves."""

    def __init__(self, source: i64, number: Number, accepted: bool, run: Run, targets: list[int]) -> None:
        super().__init__(HANDED_IN)
        self.source: i64 = source
        self.number: Number = number
        self.accepted: bool = accepted
        self.run: Run = run
        self.targets: list[int] = targets

    def encode(self, w: BytesWriter) -> None:
        write_i64_be(w, self.source)
        self.number.encode(w)
        w.append(1 if self.accepted else 0)
        encode_message(w, self.run, self.targets)


class HandedOver(Record):
    """`target partition` has answered every hand-off up to `number`; `refused` are those that stay here, to be sent again."""

    def __init__(self, partition: i64, number: Number, refused: list[Number]) -> None:
        super().__init__(HANDED_OVER)
        self.partition: i64 = partition
        self.number: Number = number
        self.refused: list[Number] = refused

    def encode(self, w: BytesWriter) -> None:
        write_i64_be(w, self.partition)
        self.number.encode(w)
        encode_numbers(w, self.refused)


class Carried(Record):
    """A message moved forward so that its segment can go. Only the location changes: `original` is what it stays known by."""

    def __init__(self, original: i64, owners: list[int], ordinals: list[int], run: Run) -> None:
        super().__init__(CARRIED)
        self.original: i64 = original
        self.owners: list[int] = owners         # targets that still owe it
        self.ordinals: list[int] = ordinals     # its ordinal in each; -1 where the owner is the shard itself (delayed, hand-off)
        self.run: Run = run

    def encode(self, w: BytesWriter) -> None:
        write_i64_be(w, self.original)
        write_u32(w, len(self.owners))
        for k in range(len(self.owners)):
            write_i64_be(w, self.owners[k])
            write_i64_be(w, self.ordinals[k])
        encode_message(w, self.run, [])


class Metadata(Record):
    """One change of what users name: a CBOR map, opaque here (`core/catalog.py`)."""

    def __init__(self, change: bytes) -> None:
        super().__init__(METADATA)
        self.change: bytes = change

    def encode(self, w: BytesWriter) -> None:
        w.write(self.change)


class Delayed(Record):
    """A message that becomes due later; routed only then."""

    def __init__(self, due_ms: i64, run: Run) -> None:
        super().__init__(DELAYED)
        self.due_ms: i64 = due_ms
        self.run: Run = run

    def encode(self, w: BytesWriter) -> None:
        write_i64_be(w, self.due_ms)
        encode_message(w, self.run, [])


class Released(Record):
    """Settled messages of a keeping queue that need not be kept any longer, all below `upto`."""

    def __init__(self, target: i64, upto: i64) -> None:
        super().__init__(RELEASED)
        self.target: i64 = target
        self.upto: i64 = upto

    def encode(self, w: BytesWriter) -> None:
        write_i64_be(w, self.target)
        write_i64_be(w, self.upto)


class State(Record):
    """An opaque value that somebody above the core keeps in a partition: a session, an offset. An empty value deletes."""

    def __init__(self, key: bytes, value: bytes) -> None:
        super().__init__(STATE)
        self.key: bytes = key
        self.value: bytes = value

    def encode(self, w: BytesWriter) -> None:
        write_u16(w, len(self.key))
        w.write(self.key)
        w.write(self.value)


class QueueKeeps(Record):
    """From here on the queue keeps what was settled until it is `Released`."""

    def __init__(self, queue: i64, keeps: bool) -> None:
        super().__init__(QUEUE_KEEPS)
        self.queue: i64 = queue
        self.keeps: bool = keeps

    def encode(self, w: BytesWriter) -> None:
        write_i64_be(w, self.queue)
        w.append(1 if self.keeps else 0)


class Rewound(Record):
    """Everything kept from `to` on is waiting again."""

    def __init__(self, target: i64, to: i64) -> None:
        super().__init__(REWOUND)
        self.target: i64 = target
        self.to: i64 = to

    def encode(self, w: BytesWriter) -> None:
        write_i64_be(w, self.target)
        write_i64_be(w, self.to)


class SentAgain(Record):
    """Hand-offs that `partition` refused get new numbers, and are sent once more."""

    def __init__(self, partition: i64, numbers: list[Number]) -> None:
        super().__init__(SENT_AGAIN)
        self.partition: i64 = partition
        self.numbers: list[Number] = numbers

    def encode(self, w: BytesWriter) -> None:
        write_i64_be(w, self.partition)
        encode_numbers(w, self.numbers)


class Due(Record):
    """The delayed message at `source` goes out now, to these letters."""

    def __init__(self, source: i64, letters: list[Letter]) -> None:
        super().__init__(DUE)
        self.source: i64 = source
        self.letters: list[Letter] = letters
        self.run: Run | None = None         # in memory only: the message

    def encode(self, w: BytesWriter) -> None:
        write_i64_be(w, self.source)
        encode_letters(w, self.letters)


# ------------------------------------------------------------------------------------------------ encoding

def encode_numbers(w: BytesWriter, numbers: list[Number]) -> None:
    write_u32(w, len(numbers))
    for number in numbers:
        number.encode(w)


def encode_ranges(w: BytesWriter, lo: list[int], hi: list[int]) -> None:
    n: i64 = len(lo)
    write_u32(w, n)
    k: i64 = 0
    while k < n:
        write_i64_be(w, lo[k])
        write_i64_be(w, hi[k])
        k += 1


def encode_letters(w: BytesWriter, letters: list[Letter]) -> None:
    write_u16(w, len(letters))
    for letter in letters:
        write_i64_be(w, letter.partition)
        write_u32(w, len(letter.targets))
        for target in letter.targets:
            write_i64_be(w, target)
        encode_address(w, letter.exchange, letter.routing_key, b"", letter.notes)


def encode_message(w: BytesWriter, run: Run, targets: list[int]) -> None:
    """One message inside another record; its time is kept in full, since it is older than the record."""
    write_i64_be(w, run.time_ms)
    write_u32(w, len(targets))
    for target in targets:
        write_i64_be(w, target)
    w.append(int(run.origin))
    w.append(int(run.priority))
    w.append(int(run.flags))
    write_i64_be(w, run.deadline_ms)
    encode_address(w, run.exchange, run.routing_key, run.key, run.notes)
    write_u32(w, len(run.spans[0]))
    w.write(run.spans[0])


def message_head(run: Run, time_delta: i64, route_part: bytes) -> bytes:
    """Everything between a message's offset delta and its span, the same for a whole run."""
    w = BytesWriter()
    w.append(MESSAGE)
    write_u32(w, time_delta)
    w.append(int(run.origin))
    w.append(int(run.priority))
    w.append(int(run.flags))
    write_i64_be(w, run.deadline_ms)
    w.write(route_part)
    encode_address(w, run.exchange, run.routing_key, run.key, run.notes)
    return w.getvalue()


def route_part(targets: list[int], route: i64) -> bytes:
    w = BytesWriter()
    if route >= 0:
        w.append(BY_ROUTE)
        write_i64_be(w, route)
    else:
        w.append(len(targets))
        for target in targets:
            write_i64_be(w, target)
    return w.getvalue()


def write_messages(w: BytesWriter, delta: i64, head: bytes, spans: list[bytes]) -> None:
    """The hot loop of every publish: four writes a message."""
    extra: i64 = len(head) + 4
    for span in spans:
        write_u32(w, len(span) + extra)
        write_u32(w, delta)
        w.write(head)
        w.write(span)
        delta += 1


def write_record(w: BytesWriter, delta: i64, time_delta: i64, record: Record) -> None:
    body = BytesWriter()
    record.encode(body)
    write_u32(w, len(body) + 9)
    write_u32(w, delta)
    w.append(int(record.kind))
    write_u32(w, time_delta)
    w.write(body.getvalue())
