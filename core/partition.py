"""One partition as its leader runs it: records are appended to the batch that is being collected, and applied.

`apply` is the one function that changes durable state. It runs here at append (the partition is not replicated), and again at recovery,
with the same records; it never looks at the clock, the configuration or another partition. What it needs to know, the record says.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from trilogue.core.batch import RECORDS_AT, read_header, seal
from trilogue.core.decoding import decode
from trilogue.core.errors import StoreError, Unavailable
from trilogue.core.flusher import Flushed, Flusher
from trilogue.core.message import Run
from trilogue.core.ports import Log, Scheduler
from trilogue.core.record import HandedIn, Messages, Number, Record, any_same, message_head, write_messages, write_record

REPLAY_BYTES: Final = 4 << 20


class Head:
    """The encoded head of the last run that went to the same targets: consecutive runs mostly share it."""

    def __init__(self, part: bytes) -> None:
        self.part: bytes = part             # targets or route, encoded
        self.head: bytes = b""
        self.time_delta: i64 = -1
        self.deadline_ms: i64 = 0
        self.kind: i64 = -1                 # origin, priority and flags
        self.exchange: bytes = b""
        self.routing_key: bytes = b""

    def encode(self, run: Run, time_delta: i64) -> bytes:
        kind: i64 = run.origin << 16 | run.priority << 8 | run.flags
        plain = not run.key and not run.notes
        if (plain and kind == self.kind and time_delta == self.time_delta and run.deadline_ms == self.deadline_ms
                and run.routing_key is self.routing_key and run.exchange is self.exchange):
            return self.head
        head = message_head(run, time_delta, self.part)
        if plain:
            self.head = head
            self.kind = kind
            self.time_delta = time_delta
            self.deadline_ms = run.deadline_ms
            self.exchange = run.exchange
            self.routing_key = run.routing_key
        return head


@mypyc_attr(allow_interpreted_subclasses=True)
class HandOffSender:
    """Told by a partition that took in hand-offs what became of them, once that is on disk; implemented by `core/handoff.py`."""

    def answered(self, partition: i64, number: Number, accepted: bool) -> None:
        raise NotImplementedError


class Answer:
    def __init__(self, sender: HandOffSender, number: Number, accepted: bool) -> None:
        self.sender: HandOffSender = sender
        self.number: Number = number
        self.accepted: bool = accepted


class Partition(Flushed):
    def __init__(self, id: i64, log: Log, scheduler: Scheduler, flusher: Flusher, epoch: i64) -> None:
        self.id: i64 = id
        self.bit: i64 = 0
        self.log: Log = log
        self.scheduler: Scheduler = scheduler
        self.flusher: Flusher = flusher
        self.epoch: i64 = epoch
        self.record_epoch: i64 = epoch      # leader epoch of the record that is being applied
        self.applied_to: i64 = 0            # offset up to which the state loaded from a checkpoint includes the log
        self.stopped: str = ""              # why it no longer serves
        self.next: i64 = log.end_offset()   # offset of the next record
        self.base: i64 = self.next          # offset of the first record of the batch that is being collected
        self.count: i64 = 0
        self.time_ms: i64 = 0               # of that batch
        self.segment: i64 = log.segment_base()
        self.w: BytesWriter = BytesWriter()
        self.marks: dict[int, Number] = {}      # last hand-off taken from each partition
        self.refused: dict[int, list[Number]] = {}      # those that were refused, as far as their sender may not know it
        self.answers: list[Answer] = []
        self.answers_flying: list[Answer] = []

    # -------------------------------------------------------------------------------------------- the one function

    @abstractmethod
    def apply(self, record: Record, segment: i64) -> None:
        """Change the durable state as the record says. `segment` is the base offset of the segment it lies in."""

    # -------------------------------------------------------------------------------------------- append

    def begin_record(self) -> i64:
        """Time since the batch began; the first record begins it."""
        if self.stopped:
            raise Unavailable(f"partition {self.id} is stopped: {self.stopped}")
        now = self.scheduler.now_ms()
        if self.count == 0:
            self.time_ms = now
            self.flusher.need(self)
            return 0
        return now - self.time_ms

    def append(self, record: Record) -> None:
        time_delta = self.begin_record()
        write_record(self.w, self.next - self.base, time_delta, record)
        record.offset = self.next
        self.next += 1
        self.count += 1
        self.apply(record, self.segment)

    def append_messages(self, run: Run, targets: list[int], route: i64, head: Head) -> None:
        """A run for these targets, or by an interned route."""
        time_delta = self.begin_record()
        run.offset = self.next
        run.time_ms = self.time_ms + time_delta
        if run.ttl_ms >= 0:
            run.deadline_ms = run.time_ms + run.ttl_ms
        write_messages(self.w, self.next - self.base, head.encode(run, time_delta), run.spans)
        count: i64 = len(run.spans)
        self.next += count
        self.count += count
        record = Messages(run, targets, route)
        record.offset = run.offset
        self.apply(record, self.segment)

    # -------------------------------------------------------------------------------------------- flush

    def before_flush(self) -> None:
        """Append what was only noted so far."""

    def flush(self) -> None:
        if self.stopped:
            return
        self.before_flush()
        self.answers_flying.extend(self.answers)
        self.answers = []
        if self.count == 0:
            return
        records = self.w.getvalue()
        self.w.truncate(0)
        head = seal(records, self.base, self.next - 1, self.epoch, self.log.synced_offset(), self.time_ms, self.count)
        self.log.stage([head, records], self.next, self.time_ms)
        self.base = self.next
        self.count = 0
        self.segment_began(self.log.segment_base())

    def segment_began(self, base: i64) -> None:
        """The next batch goes to the segment with this base."""
        self.segment = base

    def flushed(self) -> None:
        answers = self.answers_flying
        self.answers_flying = []
        for answer in answers:
            answer.sender.answered(self.id, answer.number, answer.accepted)

    def failed(self, reason: str) -> None:
        """Stop. What was collected meanwhile will never be written: nobody may be told that it was."""
        self.stopped = reason
        self.answers = []
        self.answers_flying = []
        self.w.truncate(0)
        self.count = 0
        for publisher in list(self.flusher.waiting):
            if publisher.waits & self.bit:
                publisher.refused(publisher.sequence, StoreError(reason))

    # -------------------------------------------------------------------------------------------- hand-offs taken in

    def take_in(self, source: i64, number: Number, predecessor: Number | None, answered_to: Number | None, run: Run, targets: list[int],
                sender: HandOffSender) -> bool:
        """Take a hand-off in order (RULES 11). False: it does not follow what was taken last; send again from there on.

        Up to `answered_to` the sender has logged our answers, and will not ask again."""
        mark = self.marks.get(source)
        refused = self.refused.get(source)
        if refused is not None and answered_to is not None:
            refused = [other for other in refused if other.above(answered_to)]
            self.refused[source] = refused
        if mark is not None and not number.above(mark):
            # A duplicate gets the same answer. Its record may still be on its way to the disk, and the answer waits for that.
            self.answer(Answer(sender, number, refused is None or not any_same(refused, number)))
            return True
        if mark is not None and (predecessor is None or not mark.same(predecessor)):
            return False
        if mark is None and predecessor is not None:
            return False
        kept = self.kept_targets(targets)
        accepted = len(kept) == 0 or self.has_room(kept, run)
        if accepted:
            kept = self.fresh_targets(kept, run)
            self.append(HandedIn(source, number, True, run, kept))
            self.took_in(kept)
        else:
            self.append(HandedIn(source, number, False, Run(b"", b"", run.origin, [b""], 0), []))
        self.answer(Answer(sender, number, accepted))
        return True

    def answer(self, answer: Answer) -> None:
        self.answers.append(answer)
        self.flusher.need(self)

    def kept_targets(self, targets: list[int]) -> list[int]:
        """Those that still exist."""
        return targets

    def fresh_targets(self, targets: list[int], run: Run) -> list[int]:
        """Those that did not take the same message before."""
        return targets

    def took_in(self, targets: list[int]) -> None:
        """A hand-off was just applied to these."""

    def has_room(self, targets: list[int], run: Run) -> bool:
        return True

    # -------------------------------------------------------------------------------------------- recovery

    def replay(self, start: i64) -> i64:
        """Apply everything in the log from `start` on; returns how many bytes were read."""
        total: i64 = 0
        at = start
        while at < self.log.end_offset():
            batches = self.log.read(at, REPLAY_BYTES)
            if not batches:
                break
            for batch in batches:
                total += len(batch)
                at = self.replay_batch(batch, at)
        self.record_epoch = self.epoch
        return total

    def replay_batch(self, batch: bytes, start: i64) -> i64:
        header = read_header(batch, 0)
        segment = self.segment_of(header.base)
        self.record_epoch = header.epoch
        for record in decode(header, batch[RECORDS_AT:]):
            if record.offset >= start:
                self.apply(record, segment)
            elif isinstance(record, Messages) and record.offset + len(record.run.spans) > start:
                # Two publishes look like one run when they are read back, and the start may lie between them.
                skip: i64 = start - record.offset
                rest = Messages(record.run.part(skip, len(record.run.spans)), record.targets, record.route)
                rest.offset = start
                self.apply(rest, segment)
        return header.last + 1

    def segment_of(self, offset: i64) -> i64:
        base: i64 = 0
        for info in self.log.segments():
            if info.base > offset:
                break
            base = info.base
        return base
