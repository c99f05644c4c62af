"""A shard: many queues in one partition. Messages for several of them are written once, and their acknowledgements lie beside them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from librt.strings import read_i64_be
from mypy_extensions import i64, mypyc_attr

from trilogue.core.chain import Block, Chain, Liveness, block_key
from trilogue.core.delays import Delays
from trilogue.core.duplicates import Seen, SeenHome
from trilogue.core.flusher import Flusher
from trilogue.core.handoff import Exchange, Outbox
from trilogue.core.lane import EVERYTHING, Lane, Piece, Source
from trilogue.core.message import MORE_KEYS, Run
from trilogue.core.partition import Head
from trilogue.core.ports import Callback, Checkpoints, Log, Scheduler
from trilogue.core.queue import Queue, bytes_of
from trilogue.core.record import (
    TARGETS_INLINE_MAX,
    Carried,
    Delayed,
    Due,
    HandedIn,
    HandedOver,
    Letter,
    Messages,
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
    route_part,
)
from trilogue.core.snapshot import (
    DELAY_ITEM,
    QUEUE_ITEM,
    STATE_ITEM,
    copy_number,
    copy_outbox,
    copy_queue,
    item_key,
    item_number,
    known_number,
    restore_outbox,
    restore_queue,
)
from trilogue.core.window import Budget


@mypyc_attr(allow_interpreted_subclasses=True)
class ShardOwner(ABC):
    """What a shard asks of the broker: decisions that need routing or metadata."""

    @abstractmethod
    def letters(self, queue: Queue, run: Run, reason: i64) -> list[Letter]:
        """Where the dead letters of a queue go, for messages with this address. Empty: nowhere."""

    def identity(self, queue: Queue, run: Run) -> bytes:
        """What the queue tells duplicates of a message (the run's only one) by. Empty: it has none."""
        return b""

    def pass_on(self, queue: Queue, run: Run) -> None:
        """Dead-letter a message, the run's only one, that the queue has no room for and so never owned."""

    @abstractmethod
    def by_headers(self, queue: Queue) -> bool:
        """Does where its dead letters go depend on more than their address?"""

    @abstractmethod
    def route_delayed(self, run: Run) -> list[Letter]:
        """Where a delayed message that is due goes."""

    @abstractmethod
    def queue_unused(self, queue: Queue) -> None: ...

    @abstractmethod
    def partition_failed(self, partition: i64, reason: str) -> None: ...


class Route:
    """Targets in one shard that messages go to together. Above four they are interned: defined again at first use in every segment."""

    def __init__(self, targets: list[int]) -> None:
        self.targets: list[int] = targets
        self.interned: bool = len(targets) > TARGETS_INLINE_MAX
        self.defined_at: i64 = -1           # offset of the definition
        self.segment: i64 = -1              # and the segment it lies in
        self.head: Head = Head(b"" if self.interned else route_part(targets, -1))


class Wake(Callback):
    def __init__(self, queue: Queue, time_ms: i64) -> None:
        self.queue: Queue = queue
        self.time_ms: i64 = time_ms

    def fire(self) -> None:
        self.queue.wake(self.time_ms)


class Shard(SeenHome):
    def __init__(self, id: i64, log: Log, scheduler: Scheduler, flusher: Flusher, epoch: i64, store: Checkpoints, prefix: bytes, budget: Budget,
                 owner: ShardOwner, exchange: Exchange, synced: bool) -> None:
        super().__init__(id, log, scheduler, flusher, epoch)
        self.owner: ShardOwner = owner
        self.synced: bool = synced
        self.source: Source = Source(log, store, prefix, budget)
        self.liveness: Liveness = Liveness()
        for info in log.segments():
            self.liveness.opened(info.base)
        self.queues: dict[int, Queue] = {}
        self.routes: dict[int, list[int]] = {}      # interned, of the segment being written or replayed
        self.routes_before: dict[int, list[int]] = self.routes      # the same when the last copy began
        self.states: dict[bytes, bytes] = {}
        self.outbox: Outbox = Outbox(self, exchange)
        self.delays: Delays = Delays(self)
        self.seen: Seen = Seen(self)
        self.dirty_lanes: list[Lane] = []
        self.marked: list[Lane] = []                # their marks are in the round that is in flight
        self.changed_queues: set[int] = set()       # since the last checkpoint
        self.changed_states: set[bytes] = set()
        self.storing: list[Block] = []              # index blocks in the copy that is being made
        self.garbage: list[bytes] = []
        self.lagging: bool = False

    # -------------------------------------------------------------------------------------------- apply

    def apply(self, record: Record, segment: i64) -> None:
        if isinstance(record, Messages):
            targets = record.targets
            if record.route >= 0:
                targets = self.routes[record.route]
            self.add_run(record.run, targets, record.offset, segment)
        elif isinstance(record, Progress):
            self.apply_progress(record)
        elif isinstance(record, Returned):
            queue = self.known(record.target, record.offset)
            if queue is not None and record.counted:
                chain = queue.lane(record.target & 255).chain
                for k in range(len(record.lo)):
                    chain.give_back(record.lo[k], record.hi[k])
        elif isinstance(record, Removed):
            self.apply_removed(record)
        elif isinstance(record, RouteDefined):
            self.routes[record.offset] = record.targets
        else:
            self.apply_rare(record, segment)

    def apply_rare(self, record: Record, segment: i64) -> None:
        if isinstance(record, HandedIn):
            if record.offset >= self.applied_to:
                self.marks[record.source] = record.number
                if not record.accepted:
                    self.refused.setdefault(record.source, []).append(record.number)
            if record.accepted:
                self.add_run(record.run, record.targets, record.offset, segment, True)
        elif isinstance(record, Carried):
            self.apply_carried(record, segment)
        elif isinstance(record, (QueueGone, QueueKeeps, Released, Rewound)):
            self.apply_queue(record)
        elif record.offset >= self.applied_to:
            self.apply_own(record, segment)

    def apply_own(self, record: Record, segment: i64) -> None:
        """Records that concern the shard and no queue."""
        if isinstance(record, HandedOver):
            for source in self.outbox.handed_over(record):
                self.unowed(source)
        elif isinstance(record, SentAgain):
            self.outbox.sent_again(record)
        elif isinstance(record, Delayed):
            self.delays.add(record.due_ms, record.offset)
            self.owed(record.offset)
        elif isinstance(record, Due):
            self.apply_due(record)
        elif isinstance(record, State):
            self.changed_states.add(record.key)
            if record.value:
                self.states[record.key] = record.value
            else:
                self.states.pop(record.key, None)

    def apply_queue(self, record: Record) -> None:
        if isinstance(record, QueueGone):
            gone = self.queues.pop(record.queue, None)
            if gone is not None:
                for lane in gone.lanes:
                    lane.chain.abandon()
                    self.collect_garbage(lane.chain)
                gone.close()
                self.changed_queues.add(record.queue)
        elif isinstance(record, QueueKeeps):
            queue = self.queue(record.queue)
            if record.offset >= queue.applied_to:
                queue.keeps = record.keeps
                for lane in queue.lanes:
                    lane.chain.set_keeps(record.keeps)
        elif isinstance(record, Released):
            known = self.known(record.target, record.offset)
            if known is not None:
                known.lane(record.target & 255).chain.release(record.upto)
        elif isinstance(record, Rewound):
            known = self.known(record.target, record.offset)
            if known is not None:
                known.lane(record.target & 255).rewound(record.to)

    def queue(self, id: i64) -> Queue:
        """A queue id that the shard does not know is created by its first record."""
        queue = self.queues.get(id)
        if queue is None:
            queue = Queue(id, self, self.source, self.liveness)
            self.queues[id] = queue
        self.changed_queues.add(id)
        return queue

    def known(self, target: i64, offset: i64) -> Queue | None:
        """The queue of a target, unless it is gone, or its checkpoint already has what the record says."""
        queue = self.queues.get(target >> 8)
        if queue is None or offset < queue.applied_to:
            return None
        self.changed_queues.add(queue.id)
        return queue

    def add_run(self, run: Run, targets: list[int], offset: i64, segment: i64, handed: bool = False) -> None:
        run.offset = offset
        for target in targets:
            queue = self.queue(target >> 8)
            if offset >= queue.applied_to:
                queue.add(target & 255, offset, run, segment, handed)
            elif offset + len(run.spans) > queue.applied_to:
                # Read back as one run, but the queue was copied between two publishes.
                rest = run.part(queue.applied_to - offset, len(run.spans))
                queue.add(target & 255, rest.offset, rest, segment, handed)

    def apply_progress(self, record: Progress) -> None:
        queue = self.known(record.target, record.offset)
        if queue is None:
            return
        lane = queue.lane(record.target & 255)
        chain = lane.chain
        chain.lose_size(record.size)
        if record.delivered_to > chain.delivered_to:
            chain.delivered_to = record.delivered_to
        for k in range(len(record.lo)):
            chain.settle(record.lo[k], record.hi[k])
        lane.trim()

    def apply_removed(self, record: Removed) -> None:
        queue = self.queues.get(record.target >> 8)
        if queue is None:
            return
        self.changed_queues.add(queue.id)
        lane = queue.lane(record.target & 255)
        chain = lane.chain
        owned: list[tuple[int, int]] = []
        if record.letters:
            owned = chain.done.missing(max(record.lo[0], chain.floor), record.hi[0])
        if record.offset >= queue.applied_to:
            chain.lose_size(record.size)
            for k in range(len(record.lo)):
                chain.settle(record.lo[k], record.hi[k])
            lane.trim()
        elif record.offset >= self.applied_to:
            raise AssertionError("a shard is checkpointed after its queues")
        if record.offset < self.applied_to:
            return
        index: i64 = 0
        for lo, hi in owned:
            for ordinal in range(lo, hi):
                skip: i64 = ordinal - record.lo[0]
                source = record.source + skip
                run = record.run
                one = None if run is None else run.part(record.run_at + skip, record.run_at + skip + 1)
                for letter in record.letters:
                    self.outbox.add(record.offset, index, letter, source, one)
                    self.owed(source)
                    index += 1

    def apply_due(self, record: Due) -> None:
        if not self.delays.remove(record.source):
            return
        index: i64 = 0
        for letter in record.letters:
            self.outbox.add(record.offset, index, letter, record.source, record.run)
            self.owed(record.source)
            index += 1
        self.unowed(record.source)

    def apply_carried(self, record: Carried, segment: i64) -> None:
        for k in range(len(record.owners)):
            owner = record.owners[k]
            if owner < 0:
                # Some of what the shard owed when the message was chosen may be answered by now.
                times: i64 = self.outbox.owed.get(record.original, 0)
                if times and record.offset >= self.applied_to:
                    self.liveness.change(self.liveness.base_of(self.outbox.located(record.original)), -times)
                    self.liveness.change(segment, times)
                    self.outbox.moved[record.original] = record.offset
            else:
                queue = self.known(owner, record.offset)
                if queue is not None:
                    queue.lane(owner & 255).chain.move(record.ordinals[k], record.offset, segment)

    def owed(self, source: i64) -> None:
        """The shard itself needs the message at `source`, for a hand-off or until it is due."""
        outbox = self.outbox
        outbox.owed[source] = outbox.owed.get(source, 0) + 1
        self.liveness.change(self.liveness.base_of(outbox.located(source)), 1)

    def unowed(self, source: i64) -> None:
        outbox = self.outbox
        self.liveness.change(self.liveness.base_of(outbox.located(source)), -1)
        times: i64 = outbox.owed[source] - 1
        if times:
            outbox.owed[source] = times
        else:
            del outbox.owed[source]
            outbox.moved.pop(source, None)

    # -------------------------------------------------------------------------------------------- lead

    def publish(self, run: Run, route: Route) -> None:
        """Append a run and let the consumers of its queues have it."""
        if route.interned and route.segment != self.segment:
            self.define(route)
        self.append_messages(run, route.targets, route.defined_at, route.head)
        self.took_in(route.targets)

    def took_in(self, targets: list[int]) -> None:
        for target in targets:
            queue = self.queues[target >> 8]
            # Whoever waits for a message gets it, even from a queue that may hold none.
            if queue.consumers:
                queue.pump()
            if queue.options.max_length >= 0 or queue.options.max_bytes >= 0:
                queue.drop_overflow()
            if queue.restless:
                queue.watch_head()

    def define(self, route: Route) -> None:
        record = RouteDefined(route.targets)
        self.append(record)
        route.defined_at = record.offset
        route.segment = self.segment
        route.head = Head(route_part(route.targets, record.offset))

    def lead(self) -> None:
        """Recovered: begin to decide. Whatever was delivered before may be delivered again, and says so."""
        self.leading = True
        for queue in self.queues.values():
            for lane in queue.lanes:
                self.lead_lane(lane)

    def begin_deciding(self) -> None:
        """All shards lead: see to what became due meanwhile, and go on with what is owed."""
        for queue in list(self.queues.values()):
            queue.drop_overflow()
            queue.watch_head()
        self.outbox.lead(self.log.synced_offset())
        self.delays.arm()

    def lead_lane(self, lane: Lane) -> None:
        chain = lane.chain
        lane.cursor = chain.floor
        lane.returned.clear()
        lane.window.clear(chain.floor)
        lane.again_below = chain.delivered_to if chain.delivered_to < chain.next else chain.next
        lane.mark = chain.delivered_to
        lane.safe_to = chain.delivered_to if self.synced else EVERYTHING

    def lane_dirty(self, lane: Lane) -> None:
        if not lane.dirty:
            lane.dirty = True
            self.dirty_lanes.append(lane)
        if lane.marking >= 0:
            self.flusher.need(self)
        elif self.bit == 0 and not self.lagging:
            self.lagging = True
            self.flusher.lag(self)

    def before_flush(self) -> None:
        self.lagging = False
        lanes = self.dirty_lanes
        self.dirty_lanes = []
        for lane in lanes:
            lane.dirty = False
            self.write_progress(lane)
        self.outbox.before_flush()

    def write_progress(self, lane: Lane) -> None:
        chain = lane.chain
        mark: i64 = -1
        if lane.safe_to != EVERYTHING:
            mark = lane.safe_to if lane.safe_to > lane.marking else lane.marking
            if mark <= lane.mark:
                mark = -1
            else:
                lane.mark = mark
                self.marked.append(lane)
        lane.marking = -1
        if mark < 0 and not lane.acked_lo:
            return
        record = Progress(chain.target, mark, lane.acked_size, lane.acked_lo, lane.acked_hi)
        lane.acked_lo = []
        lane.acked_hi = []
        lane.acked_size = 0
        if not lane.closed:
            self.append(record)

    def flushed(self) -> None:
        super().flushed()
        marked = self.marked
        self.marked = []
        for lane in marked:
            if lane.safe_to < lane.mark:
                # Whatever came after the mark is in the batch that is being collected, and that will carry the next one.
                lane.safe_to = lane.chain.next
                if lane.safe_to > lane.mark:
                    self.lane_dirty(lane)
                lane.owner.lane_ready()
        self.source.written()
        self.outbox.flushed(self.log.synced_offset())

    def segment_began(self, base: i64) -> None:
        if base != self.segment:
            self.segment = base
            self.liveness.opened(base)
            self.routes = {}

    def failed(self, reason: str) -> None:
        super().failed(reason)
        self.leading = False
        queues = list(self.queues.values())
        for queue in queues:
            consumers = queue.consumers
            queue.consumers = []
            for consumer in consumers:
                consumer.cancelled()
        self.owner.partition_failed(self.id, reason)

    def kept_targets(self, targets: list[int]) -> list[int]:
        return [target for target in targets if target >> 8 in self.queues]

    def has_room(self, targets: list[int], run: Run) -> bool:
        for target in targets:
            if self.queues[target >> 8].accepts(run) == 0:
                return False
        return True

    def fresh_targets(self, targets: list[int], run: Run) -> list[int]:
        return [target for target in targets if self.is_fresh(self.queues[target >> 8], run)]

    def is_fresh(self, queue: Queue, run: Run) -> bool:
        """Is a message, the run's only one, none that the queue took before? If so, the queue will remember it."""
        return not queue.options.deduplication or self.seen.admit(queue, self.owner.identity(queue, run))

    def take_delayed(self, run: Run, due_ms: i64) -> None:
        self.append(Delayed(due_ms, run))
        self.delays.arm()

    # -------------------------------------------------------------------------------------------- checkpoint

    def take_loose(self) -> list[bytes]:
        keys = [item_key(QUEUE_ITEM, id) for id in self.changed_queues]
        self.changed_queues = set()
        self.routes_before = self.routes
        return keys

    def take_tight(self) -> list[bytes]:
        keys = [STATE_ITEM + key for key in self.changed_states]
        keys.extend([item_key(DELAY_ITEM, offset) for offset in self.delays.changed])
        self.changed_states = set()
        self.delays.changed = set()
        return keys

    def copy_item(self, key: bytes, extra: list[tuple[bytes, bytes]]) -> bytes | None:
        kind = key[:1]
        if kind == QUEUE_ITEM:
            queue = self.queues.get(item_number(key))
            if queue is None:
                return None
            for lane in queue.lanes:
                self.collect_garbage(lane.chain)
            return copy_queue(queue, self.next, self.source.prefix, extra, self.storing)
        if kind == STATE_ITEM:
            return self.states.get(key[1:])
        due = self.delays.due.get(item_number(key), -1)
        return None if due < 0 else item_key(b"", due)

    def collect_garbage(self, chain: Chain) -> None:
        for first in chain.dropped:
            self.garbage.append(block_key(self.source.prefix, chain.target, first))
        chain.dropped = []

    def copy_head(self) -> dict[str, Any]:
        marks = {source: copy_number(number) for source, number in self.marks.items()}
        refused = {source: [copy_number(number) for number in numbers] for source, numbers in self.refused.items() if numbers}
        # Recovery begins where the copy began, which may be in an earlier segment.
        routes = {**self.routes_before, **self.routes}
        return {"marks": marks, "refused": refused, "outbox": copy_outbox(self.outbox), "routes": routes}

    def take_garbage(self) -> list[bytes]:
        garbage = self.garbage
        self.garbage = []
        return garbage

    def restore(self, head: dict[str, Any], items: list[tuple[bytes, bytes]]) -> None:
        for source, number in head["marks"].items():
            self.marks[source] = known_number(number)
        for source, numbers in head["refused"].items():
            self.refused[source] = [known_number(number) for number in numbers]
        self.routes = head["routes"]
        restore_outbox(self.outbox, head["outbox"])
        for key, value in items:
            if key[:1] == QUEUE_ITEM:
                restore_queue(self.queue(item_number(key)), value)
            elif key[:1] == STATE_ITEM:
                self.states[key[1:]] = value
                self.changed_states.add(key[1:])
            else:
                self.delays.add(read_i64_be(value, 0), item_number(key))
        for source in self.outbox.sources():
            self.owed(source)
        for source in self.delays.due:
            self.owed(source)

    def stored(self) -> None:
        for block in self.storing:
            block.stored = True
        self.storing = []
        for queue in self.queues.values():
            for lane in queue.lanes:
                if len(lane.chain.blocks) > 4:
                    lane.chain.unload_blocks()

    def dead_segments(self) -> list[int]:
        return [base for base in self.liveness.bases if base < self.segment and self.liveness.live[base] == 0]

    def forget_segments(self, bases: list[int]) -> None:
        """They are being deleted."""
        for base in bases:
            self.liveness.closed(base)

    # -------------------------------------------------------------------------------------------- home of queues

    def dead_letter(self, queue: Queue, lane: Lane, piece: Piece, reason: i64) -> None:
        if piece.count > 1 and (piece.run.flags & MORE_KEYS or self.owner.by_headers(queue)):
            for k in range(piece.count):
                at = piece.start + k
                self.dead_letter_run(queue, lane, Piece(piece.ordinal + k, piece.run.part(at, at + 1), 0, 1, False), reason)
        else:
            self.dead_letter_run(queue, lane, piece, reason)

    def dead_letter_run(self, queue: Queue, lane: Lane, piece: Piece, reason: i64) -> None:
        run = piece.run
        letters = self.owner.letters(queue, run, reason)
        chain = lane.chain
        at = piece.ordinal
        end = at + piece.count
        while at < end:
            start: i64 = piece.start + (at - piece.ordinal)
            source: i64 = run.offset + start
            stop = end
            if chain.moved:
                # What was carried forward while it was in memory lies elsewhere by now.
                source, stop = chain.extent(at, self.source.store, self.source.prefix)
                if stop > end:
                    stop = end
            record = Removed(chain.target, reason, bytes_of(run, start, stop - at), [at], [stop], letters, source if letters else -1)
            record.run = run
            record.run_at = start
            self.append(record)
            at = stop

    def wake_at(self, queue: Queue, time_ms: i64) -> None:
        delay: i64 = time_ms - self.scheduler.now_ms()
        self.scheduler.call_later(float(delay) / 1000.0 if delay > 0 else 0.0, Wake(queue, time_ms))

    def now_ms(self) -> i64:
        return self.scheduler.now_ms()

    def marks_deliveries(self) -> bool:
        return self.synced

    def unused(self, queue: Queue) -> None:
        self.owner.queue_unused(queue)

    def route_delayed(self, run: Run) -> list[Letter]:
        return self.owner.route_delayed(run)

    def unreadable(self, queue: Queue, error: Exception) -> None:
        self.failed(str(error))

