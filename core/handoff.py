"""The sending side of a hand-off: what a partition owes to others, in order per pair (DESIGN 7, RULES 11-13).

A hand-off exists from the record that names it until a `HandedOver` record; the message stays live in its segment that long. It is
sent only when its record is on disk, and answered when the other side's is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import i64, mypyc_attr

from trilogue.core.batch import RECORDS_AT, read_header
from trilogue.core.deaths import deaths_of
from trilogue.core.decoding import decode
from trilogue.core.lane import run_of
from trilogue.core.message import Run
from trilogue.core.partition import HandOffSender, Partition
from trilogue.core.ports import BatchReader
from trilogue.core.record import Delayed, HandedOver, Letter, Number, SentAgain, any_same

RETRY_S = 1.0


class HandOff:
    """One message on its way to one partition. `source` is the offset it lies at here; `run` is it, once it is in memory."""

    def __init__(self, number: Number, letter: Letter, source: i64, run: Run | None) -> None:
        self.number: Number = number
        self.letter: Letter = letter
        self.source: i64 = source
        self.run: Run | None = run


class Pair:
    """Everything owed to one other partition, in order."""

    def __init__(self, partition: i64) -> None:
        self.partition: i64 = partition
        self.last: Number | None = None     # the last one answered for good
        self.pending: list[HandOff] = []
        self.refused: list[HandOff] = []    # they wait for another try
        self.sent: i64 = 0                  # how many of `pending` are on their way
        self.answers: list[bool] = []       # for the first of them
        self.reading: bool = False
        self.retrying: bool = False         # another try is scheduled


@mypyc_attr(allow_interpreted_subclasses=True)
class Exchange(ABC):
    """How a partition finds the other one; implemented by `core/broker.py`."""

    @abstractmethod
    def partition(self, id: i64) -> Partition | None:
        """None if it does not exist any more: what was meant for it is dropped."""

    @abstractmethod
    def retry_later(self, outbox: Outbox, pair: Pair) -> None: ...


class ReadOne(BatchReader):
    """Fetches the message of a hand-off that is not in memory, from `offset`."""

    def __init__(self, outbox: Outbox, pair: Pair, hand_off: HandOff, offset: i64) -> None:
        self.outbox: Outbox = outbox
        self.pair: Pair = pair
        self.hand_off: HandOff = hand_off
        self.offset: i64 = offset

    def batches(self, data: list[bytes], next_offset: i64, error: Exception | None) -> None:
        self.pair.reading = False
        outbox = self.outbox
        if outbox.home.stopped:
            return
        if error is not None:
            outbox.home.failed(str(error))
            return
        self.hand_off.run = message_at(data, self.offset)
        if self.hand_off.run is None and outbox.located(self.hand_off.source) == self.offset:
            outbox.home.failed(f"the message of a hand-off is not at offset {self.offset}")
            return
        outbox.send(self.pair)


class Outbox(HandOffSender):
    def __init__(self, home: Partition, exchange: Exchange) -> None:
        self.home: Partition = home
        self.exchange: Exchange = exchange
        self.pairs: dict[int, Pair] = {}
        self.owed: dict[int, int] = {}          # offset of a message that the shard itself needs -> how many times
        self.moved: dict[int, int] = {}         # those of them that were carried forward: original offset -> offset
        self.safe_to: i64 = 0                   # records below are on disk

    # -------------------------------------------------------------------------------------------- apply

    def pair(self, partition: i64) -> Pair:
        pair = self.pairs.get(partition)
        if pair is None:
            pair = Pair(partition)
            self.pairs[partition] = pair
        return pair

    def add(self, offset: i64, index: i64, letter: Letter, source: i64, run: Run | None) -> None:
        number = Number(self.home.record_epoch, offset, index)
        self.pair(letter.partition).pending.append(HandOff(number, letter, source, run))

    def handed_over(self, record: HandedOver) -> list[int]:
        """Everything up to the record's number is answered; returns the source offsets that are no longer needed for it."""
        pair = self.pair(record.partition)
        done: list[int] = []
        k: i64 = 0
        while k < len(pair.pending) and not pair.pending[k].number.above(record.number):
            hand_off = pair.pending[k]
            if any_same(record.refused, hand_off.number):
                pair.refused.append(hand_off)
            else:
                done.append(hand_off.source)
            k += 1
        del pair.pending[:k]
        pair.sent = pair.sent - k if pair.sent > k else 0
        pair.last = record.number
        return done

    def sent_again(self, record: SentAgain) -> None:
        pair = self.pair(record.partition)
        index: i64 = 0
        left: list[HandOff] = []
        for hand_off in pair.refused:
            if any_same(record.numbers, hand_off.number):
                hand_off.number = Number(self.home.record_epoch, record.offset, index)
                index += 1
                pair.pending.append(hand_off)
            else:
                left.append(hand_off)
        pair.refused = left

    def sources(self) -> list[int]:
        """The offset of every message that is owed, once for each time it is."""
        out: list[int] = []
        for pair in self.pairs.values():
            for hand_off in pair.pending:
                out.append(hand_off.source)
            for hand_off in pair.refused:
                out.append(hand_off.source)
        return out

    def located(self, source: i64) -> i64:
        return self.moved.get(source, source)

    # -------------------------------------------------------------------------------------------- lead

    def flushed(self, safe_to: i64) -> None:
        if self.home.stopped:
            return
        self.safe_to = safe_to
        for pair in list(self.pairs.values()):      # what a queue here takes in may make it owe something to yet another partition
            if pair.pending:
                self.send(pair)

    def send(self, pair: Pair) -> None:
        target = self.exchange.partition(pair.partition)
        if target is None:
            self.drop(pair)
            return
        while pair.sent < len(pair.pending) and not pair.reading and not target.stopped:
            hand_off = pair.pending[pair.sent]
            if hand_off.number.offset >= self.safe_to:
                return
            if hand_off.run is None:
                offset = self.located(hand_off.source)
                if offset >= self.safe_to:
                    return                  # just carried forward: it can be read once that is on disk
                pair.reading = True
                self.home.log.fetch(offset, 1, ReadOne(self, pair, hand_off, offset))
                return
            before = pair.pending[pair.sent - 1].number if pair.sent else pair.last
            pair.sent += 1
            letter = hand_off.letter
            run = hand_off.run
            passed = Run(letter.exchange, letter.routing_key, run.origin, run.spans, run.size, run.flags, run.priority, -1, run.key, letter.notes)
            passed.time_ms = self.home.scheduler.now_ms()
            if not deaths_of(letter.notes):
                passed.deadline_ms = run.deadline_ms        # a dead letter has none, a delayed message keeps its own
            if not target.take_in(self.home.id, hand_off.number, before, pair.last, passed, letter.targets, self):
                pair.sent = 0
                pair.answers = []
                return

    def drop(self, pair: Pair) -> None:
        """The other side is gone for good: everything that was meant for it counts as answered (RULES 10 and 12)."""
        while pair.sent < len(pair.pending) and pair.pending[pair.sent].number.offset < self.safe_to:
            pair.sent += 1
        if len(pair.answers) < pair.sent:
            while len(pair.answers) < pair.sent:
                pair.answers.append(True)
            self.home.flusher.need(self.home)

    def answered(self, partition: i64, number: Number, accepted: bool) -> None:
        pair = self.pair(partition)
        at: i64 = len(pair.answers)
        if at < pair.sent and pair.pending[at].number.same(number):
            pair.answers.append(accepted)
            self.home.flusher.need(self.home)

    def before_flush(self) -> None:
        """One record for all answers of a pair that came in together."""
        for pair in self.pairs.values():
            if pair.answers:
                refused: list[Number] = []
                for k in range(len(pair.answers)):
                    if not pair.answers[k]:
                        refused.append(pair.pending[k].number)
                last = pair.pending[len(pair.answers) - 1].number
                pair.answers = []
                self.home.append(HandedOver(pair.partition, last, refused))
                if refused:
                    self.retry_later(pair)

    def lead(self, safe_to: i64) -> None:
        """Recovered: go on with what is owed."""
        self.flushed(safe_to)
        for pair in self.pairs.values():
            if pair.refused:
                self.retry_later(pair)

    def retry_later(self, pair: Pair) -> None:
        if not pair.retrying:
            pair.retrying = True
            self.exchange.retry_later(self, pair)

    def retry(self, pair: Pair) -> None:
        pair.retrying = False
        if pair.refused and not self.home.stopped:
            self.home.append(SentAgain(pair.partition, [hand_off.number for hand_off in pair.refused]))


def message_at(data: list[bytes], offset: i64) -> Run | None:
    """The message at an offset, as a run of its own."""
    for batch in data:
        header = read_header(batch, 0)
        if header.base <= offset <= header.last:
            for record in decode(header, batch[RECORDS_AT:]):
                run = record.run if isinstance(record, Delayed) else run_of(record)
                if run is not None and record.offset <= offset < record.offset + len(run.spans):
                    return run.part(offset - record.offset, offset - record.offset + 1)
    return None
