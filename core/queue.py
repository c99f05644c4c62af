"""A queue: chains of messages by priority, and those who consume them.

The durable part is in the chains, which only `apply` changes. Everything here is the leader's: who gets what next, what has expired, what
is over a limit. Each decision becomes a record through `Home.append`, and takes effect when that is applied.
"""

from __future__ import annotations

from abc import abstractmethod

import structlog
from mypy_extensions import i64

from trilogue.core.arguments import DROP_HEAD, QueueOptions
from trilogue.core.chain import Chain, Liveness
from trilogue.core.checkpoint import Checkpointed
from trilogue.core.consumer import Consumer
from trilogue.core.errors import AccessRefused
from trilogue.core.lane import EVERYTHING, Lane, LaneOwner, Piece, Source
from trilogue.core.message import Run
from trilogue.core.record import REASON_DELIVERY_LIMIT, REASON_EXPIRED, REASON_OVERFLOW, REASON_PURGED, REASON_REJECTED, Removed, Returned


class Home(Checkpointed):
    """What a queue needs of the partition it lives in, beside `append`; implemented by `core/shard.py`."""

    leading: bool = False       # false while it is being recovered, and after it has failed: then nobody decides anything

    @abstractmethod
    def lane_dirty(self, lane: Lane) -> None:
        """The lane has progress to be written with the next flush."""

    @abstractmethod
    def dead_letter(self, queue: Queue, lane: Lane, piece: Piece, reason: i64) -> None:
        """Remove the messages of a piece, and send them on to where the queue's dead letters go."""

    @abstractmethod
    def wake_at(self, queue: Queue, time_ms: i64) -> None:
        """Call the queue's `wake` at that time."""

    @abstractmethod
    def now_ms(self) -> i64: ...

    @abstractmethod
    def marks_deliveries(self) -> bool:
        """Must a mark be on disk before a message is delivered for the first time?"""

    @abstractmethod
    def unused(self, queue: Queue) -> None:
        """The last consumer has left."""

    @abstractmethod
    def unreadable(self, queue: Queue, error: Exception) -> None:
        """The log could not be read for this queue."""


logger = structlog.get_logger("core")


class Condemned:
    """Messages that must be read before they can be dead-lettered."""

    def __init__(self, lane: Lane, lo: i64, hi: i64, reason: i64) -> None:
        self.lane: Lane = lane
        self.lo: i64 = lo
        self.hi: i64 = hi
        self.reason: i64 = reason


class Queue(LaneOwner):
    def __init__(self, id: i64, home: Home, source: Source, liveness: Liveness) -> None:
        self.id: i64 = id
        self.home: Home = home
        self.source: Source = source
        self.liveness: Liveness = liveness
        self.options: QueueOptions = QueueOptions()
        self.lanes: list[Lane] = []             # highest level first
        self.consumers: list[Consumer] = []     # highest priority first
        self.turn: i64 = 0
        self.pumping: bool = False
        self.wake_ms: i64 = 0                   # when the timer for the next deadline goes off; 0: none is set
        self.restless: bool = False             # something came in that may expire before that
        self.condemned: list[Condemned] = []
        self.keeps: bool = False
        self.applied_to: i64 = 0                # offset up to which the durable part includes the log
        self.had_consumer: bool = False
        self.used_ms: i64 = 0
        self.expiring: bool = False             # a timer watches how long it is unused
        self.published: i64 = 0
        self.delivered: i64 = 0
        self.redelivered: i64 = 0
        self.settled: i64 = 0

    # -------------------------------------------------------------------------------------------- lanes

    def lane(self, level: i64) -> Lane:
        """The lane of a priority level, made when it is first needed."""
        lanes = self.lanes
        k: i64 = 0
        n: i64 = len(lanes)
        while k < n:
            have: i64 = lanes[k].chain.target & 255
            if have == level:
                return lanes[k]
            if have < level:
                break
            k += 1
        chain = Chain(self.id << 8 | level, self.liveness)
        chain.keeps = self.keeps
        lane = Lane(chain, self.source, self)
        lane.safe_to = 0 if self.home.marks_deliveries() else EVERYTHING
        lanes.insert(k, lane)
        return lane

    def add(self, level: i64, offset: i64, run: Run, base: i64, handed: bool = False) -> None:
        """Applied: the run is at the end of the chain. `handed`: it is handed in once more if a crash loses it, so that a delivery needs its mark
        on disk like one from before."""
        lane = self.lane(level)
        chain = lane.chain
        first = chain.next
        count: i64 = len(run.spans)
        chain.add(offset, count, run.size, base)
        if run.deadline_ms:
            chain.timed_to = chain.next
        self.published += count
        wanted = len(self.consumers) > 0
        lane.appended(first, run, wanted and lane.cursor == first)
        if wanted and lane.safe_to != EVERYTHING:
            if lane.safe_to >= first and not handed:
                lane.safe_to = chain.next   # the mark goes into the same batch as the messages
            else:
                lane.marking = chain.next   # it must be on disk first, for the sake of those before
            self.home.lane_dirty(lane)
        if run.deadline_ms or self.options.message_ttl_ms >= 0:
            if self.wake_ms == 0 or self.deadline(run) < self.wake_ms:
                self.restless = True

    def ready(self) -> i64:
        n: i64 = 0
        for lane in self.lanes:
            n += lane.ready()
        return n

    def waiting(self) -> i64:
        """Ready and held together."""
        n = self.ready()
        for lane in self.lanes:
            n += lane.held
        return n

    def size(self) -> i64:
        """Bytes of what is ready and held."""
        n: i64 = 0
        for lane in self.lanes:
            n += lane.chain.size - lane.acked_size
        return n

    # -------------------------------------------------------------------------------------------- consumers

    def attach(self, consumer: Consumer) -> None:
        if not consumer.once:
            for other in self.consumers:
                if not other.once and (consumer.exclusive or other.exclusive):
                    raise AccessRefused("queue is in exclusive use")
        k: i64 = 0
        if consumer.once:
            self.used_ms = self.home.now_ms()
        else:
            self.had_consumer = True
            while k < len(self.consumers) and (self.consumers[k].once or self.consumers[k].priority >= consumer.priority):
                k += 1
        self.consumers.insert(k, consumer)
        self.mark_all()
        self.pump()

    def detach(self, consumer: Consumer) -> None:
        """It gets nothing more. What it holds stays its own until it gives it back."""
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            self.turn = 0
            if not self.consumers and not consumer.once:
                self.used_ms = self.home.now_ms()
                self.home.unused(self)
            else:
                self.pump()

    def mark_all(self) -> None:
        """There is a consumer now: what waits may be delivered once a mark that covers it is on disk."""
        for lane in self.lanes:
            if lane.safe_to < lane.chain.next and lane.mark < lane.chain.next:
                lane.marking = lane.chain.next
                self.home.lane_dirty(lane)

    def pick(self) -> Consumer | None:
        """Whose turn it is, among those of the highest priority that have room."""
        consumers = self.consumers
        n: i64 = len(consumers)
        if n == 0:
            return None
        if self.options.single_active_consumer and not consumers[0].once:
            n = 1
        k: i64 = 0
        while k < n:
            stop: i64 = k + 1
            while stop < n and consumers[stop].priority == consumers[k].priority and consumers[stop].once == consumers[k].once:
                stop += 1
            width: i64 = stop - k
            step: i64 = 0
            while step < width:
                at: i64 = k + (self.turn + step) % width
                if consumers[at].room() > 0:
                    self.turn = at - k + 1
                    return consumers[at]
                step += 1
            k = stop
        return None

    def peers(self, consumer: Consumer) -> i64:
        """How many consumers share what is ready with this one."""
        n: i64 = 0
        for other in self.consumers:
            if other.priority == consumer.priority and other.once == consumer.once and other.room() > 0:
                n += 1
        return n

    def pump(self) -> None:
        """Deliver as long as something is ready and in memory, and somebody has room."""
        if self.pumping or not self.consumers or not self.home.leading:
            return
        self.pumping = True
        share: i64 = -1
        timed = False
        while True:
            lane = self.head_lane()
            if lane is None:
                break
            consumer = self.pick()
            if consumer is None:
                break
            piece = lane.peek()
            if piece is None:
                break
            if self.expired(piece.run):
                self.expire(lane, piece)
                continue
            count: i64 = piece.count
            if piece.ordinal + count > lane.safe_to:
                count = lane.safe_to - piece.ordinal
                if count <= 0:
                    break
            room = consumer.room()
            if count > room:
                count = room
            if len(self.consumers) > 1 and count > 1:
                if share < 0:
                    share = self.share(consumer)
                if count > share:
                    count = share
            if lane.timed:
                timed = True
            self.hand_out(lane, piece, count, consumer)
        self.pumping = False
        if timed:
            self.watch_head()           # what is at the head now may expire sooner
        while self.consumers and self.consumers[0].once and self.head_lane() is None:
            self.consumers.pop(0).nothing()

    def share(self, consumer: Consumer) -> i64:
        """An even part of what is ready, so that a burst is spread over all who could take it."""
        n = self.peers(consumer)
        if self.options.single_active_consumer or n <= 1:
            return EVERYTHING
        part: i64 = (self.ready() + n - 1) // n
        return part if part > 0 else 1

    def hand_out(self, lane: Lane, piece: Piece, count: i64, consumer: Consumer) -> None:
        lane.take(piece, count)
        size = bytes_of(piece.run, piece.start, count)
        self.delivered += count
        if piece.again:
            self.redelivered += count
        lane.held += count
        lane.held_size += size
        if consumer.once:
            self.consumers.remove(consumer)
        try:
            consumer.deliver(lane, piece, count)
        except Exception as error:      # a frontend's bug must not reach whoever published
            self.broken(consumer, error)
        if consumer.no_ack:
            self.settle(lane, piece.ordinal, count, size)

    def broken(self, consumer: Consumer, error: Exception) -> None:
        """The consumer cannot take what it is given: it gets nothing more. What it holds comes back when its connection ends."""
        logger.error("consumer failed", queue=int(self.id), error=repr(error))
        if consumer in self.consumers:
            self.consumers.remove(consumer)

    def head_lane(self) -> Lane | None:
        """The highest level that has something ready."""
        for lane in self.lanes:
            if lane.head() >= 0:
                return lane
        return None

    # -------------------------------------------------------------------------------------------- answers

    def settle(self, lane: Lane, ordinal: i64, count: i64, size: i64) -> None:
        """Acknowledged. Written with the next flush, as one record for all of the queue's consumers."""
        lane.held -= count
        lane.held_size -= size
        self.settled += count
        lane.acked_size += size
        n: i64 = len(lane.acked_hi)
        if n and lane.acked_hi[n - 1] == ordinal:
            lane.acked_hi[n - 1] = ordinal + count
        else:
            lane.acked_lo.append(ordinal)
            lane.acked_hi.append(ordinal + count)
        if not lane.dirty:
            self.home.lane_dirty(lane)

    def give_back(self, lane: Lane, ordinal: i64, count: i64, size: i64, counted: bool = True) -> None:
        """Not acknowledged: back to its place. `counted` if it was really tried, which its delivery count says from then on."""
        lane.held -= count
        lane.held_size -= size
        if not self.home.leading:
            return
        limit = self.options.delivery_limit
        stop: i64 = ordinal + count
        if counted and limit >= 0:
            spent: list[int] = []
            at: i64 = ordinal
            while at < stop:
                if lane.chain.counts.get(at, 0) >= limit:
                    spent.append(at)
                at += 1
            for one in spent:
                self.put_back(lane, ordinal, one, counted)
                self.remove(lane, one, one + 1, REASON_DELIVERY_LIMIT)
                ordinal = one + 1
        self.put_back(lane, ordinal, stop, counted)

    def put_back(self, lane: Lane, lo: i64, hi: i64, counted: bool) -> None:
        if lo >= hi:
            return
        if counted:
            self.home.append(Returned(lane.chain.target, True, [lo], [hi]))
        lane.put_back(lo, hi)
        self.watch_head()

    def reject(self, lane: Lane, ordinal: i64, count: i64, size: i64) -> None:
        """Refused for good: dead-lettered if the queue says where, else dropped."""
        lane.held -= count
        lane.held_size -= size
        if self.home.leading:
            self.remove(lane, ordinal, ordinal + count, REASON_REJECTED, size)

    # -------------------------------------------------------------------------------------------- removal

    def remove(self, lane: Lane, lo: i64, hi: i64, reason: i64, size: i64 = -1) -> None:
        """Take messages that are neither ready nor held any more out of the queue. Without their `size` they must be read, if need be."""
        if size >= 0 and self.options.dead_letter_exchange is None:
            self.home.append(Removed(lane.chain.target, reason, size, [lo], [hi], [], -1))
            return
        if self.condemned:
            self.condemned.append(Condemned(lane, lo, hi, reason))      # dead letters do not overtake each other
            return
        while lo < hi:
            entry = lane.window.find(lo)
            if entry is None:
                self.condemned.append(Condemned(lane, lo, hi, reason))
                lane.fetch(lo, False)
                return
            stop: i64 = entry.end if entry.end < hi else hi
            self.remove_piece(lane, Piece(lo, entry.run, lo - entry.first, stop - lo, False), reason)
            lo = stop

    def remove_piece(self, lane: Lane, piece: Piece, reason: i64) -> None:
        if self.options.dead_letter_exchange is not None:
            self.home.dead_letter(self, lane, piece, reason)
        else:
            size = bytes_of(piece.run, piece.start, piece.count)
            self.home.append(Removed(lane.chain.target, reason, size, [piece.ordinal], [piece.ordinal + piece.count], [], -1))

    def expired(self, run: Run) -> bool:
        deadline = self.deadline(run)
        return deadline > 0 and deadline < self.home.now_ms()

    def deadline(self, run: Run) -> i64:
        """When this queue gives up a message: its own deadline or the queue's time to live, whichever is first; 0: never."""
        deadline = run.deadline_ms
        ttl = self.options.message_ttl_ms
        if ttl >= 0 and (deadline == 0 or run.time_ms + ttl < deadline):
            deadline = run.time_ms + ttl
        return deadline

    def expire(self, lane: Lane, piece: Piece) -> None:
        lane.take(piece, piece.count)
        self.remove_piece(lane, piece, REASON_EXPIRED)

    def wake(self, time_ms: i64) -> None:
        if time_ms == self.wake_ms:
            self.wake_ms = 0
            self.watch_head()

    def watch_head(self) -> None:
        """Expire what is due at the head of each lane, and come back when the next one is."""
        self.restless = False
        if not self.home.leading:
            return
        soonest: i64 = 0
        for lane in self.lanes:
            while self.may_expire(lane.chain):
                piece = lane.peek()
                if piece is None:
                    break
                deadline = self.deadline(piece.run)
                if deadline == 0 or deadline > self.home.now_ms():
                    if deadline and (soonest == 0 or deadline < soonest):
                        soonest = deadline
                    break
                self.expire(lane, piece)
        if soonest and (self.wake_ms == 0 or soonest < self.wake_ms):
            self.wake_ms = soonest
            self.home.wake_at(self, soonest)

    def may_expire(self, chain: Chain) -> bool:
        """Is it worth looking? After a start the head of every queue would have to be read for it."""
        return self.options.message_ttl_ms >= 0 or chain.timed_to > chain.floor

    def accepts(self, run: Run) -> i64:
        """How many messages of a run there is room for, where the overflow policy is to refuse."""
        options = self.options
        count: i64 = len(run.spans)
        if options.overflow <= DROP_HEAD:
            return count
        if options.max_length >= 0:
            room: i64 = options.max_length - self.ready()
            if room < count:
                count = room if room > 0 else 0
        if options.max_bytes >= 0:
            left: i64 = options.max_bytes - self.ready_size()
            k: i64 = 0
            while k < count and left > 0:
                left -= len(run.spans[k])
                k += 1
            count = k
        return count

    def ready_size(self) -> i64:
        n: i64 = 0
        for lane in self.lanes:
            n += lane.ready_size()
        return n

    def drop_overflow(self) -> None:
        """Drop what is over the limits from the head, lowest priority first."""
        options = self.options
        if not self.home.leading or (options.overflow != DROP_HEAD and options.overflow >= 0):
            return
        if options.max_length < 0 and options.max_bytes < 0:
            return
        over: i64 = self.ready() - options.max_length if options.max_length >= 0 else 0
        k: i64 = len(self.lanes) - 1
        while k >= 0:
            lane = self.lanes[k]
            excess: i64 = self.ready_size() - options.max_bytes if options.max_bytes >= 0 else 0
            if over <= 0 and excess <= 0:
                return
            piece = lane.peek()
            if piece is None:
                if lane.head() >= 0:
                    return              # being read: `lane_ready` comes back here
                k -= 1
                continue
            count: i64 = 0
            while count < piece.count and (over > 0 or excess > 0):
                excess -= len(piece.run.spans[piece.start + count])
                over -= 1
                count += 1
            lane.take(piece, count)
            self.remove_piece(lane, Piece(piece.ordinal, piece.run, piece.start, count, False), REASON_OVERFLOW)

    def purge(self) -> i64:
        """Remove everything that is ready; returns how many messages that was."""
        total: i64 = 0
        for lane in self.lanes:
            chain = lane.chain
            lane.skip_done()
            lo = list(lane.returned.lo)
            hi = list(lane.returned.hi)
            for a, z in chain.done.missing(lane.cursor, chain.next):
                lo.append(a)
                hi.append(z)
            n = lane.ready()
            if n == 0:
                continue
            total += n
            size = lane.ready_size()
            lane.returned.clear()
            lane.cursor = chain.next
            self.home.append(Removed(chain.target, REASON_PURGED, size, lo, hi, [], -1))
            if lane.window.complete_to < lane.cursor:
                lane.window.complete_to = lane.cursor
        return total

    # -------------------------------------------------------------------------------------------- events

    def lane_ready(self) -> None:
        if not self.home.leading:
            return
        condemned = self.condemned
        if condemned:
            self.condemned = []
            for one in condemned:
                self.remove(one.lane, one.lo, one.hi, one.reason)
        self.drop_overflow()
        self.watch_head()
        self.pump()

    def lane_failed(self, error: Exception) -> None:
        self.home.unreadable(self, error)

    def changed(self, options: QueueOptions) -> None:
        """The queue's effective options are these now."""
        self.options = options
        self.drop_overflow()
        self.watch_head()

    def close(self) -> None:
        """The queue is gone: tell its consumers, free its memory."""
        consumers = self.consumers
        self.consumers = []
        for lane in self.lanes:
            lane.close()
        for consumer in consumers:
            consumer.cancelled()


def bytes_of(run: Run, start: i64, count: i64) -> i64:
    if count == len(run.spans):
        return run.size
    total: i64 = 0
    k: i64 = start
    stop: i64 = start + count
    while k < stop:
        total += len(run.spans[k])
        k += 1
    return total
