"""The leader's view of one chain: what is ready, what comes next, and which part of it is in memory.

Ready = what came back (`returned`) and everything from `cursor` on, less what is settled. A lane never changes the chain; it decides, and
the records that follow from it are written by the queue. All of a lane is dropped with the leadership.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import i64, mypyc_attr

from trilogue.core.batch import RECORDS_AT, read_header
from trilogue.core.chain import Chain
from trilogue.core.decoding import decode
from trilogue.core.errors import Corrupt, StoreError
from trilogue.core.intervals import Intervals
from trilogue.core.message import Run
from trilogue.core.ports import BatchReader, Checkpoints, Log
from trilogue.core.record import Carried, HandedIn, Messages, Record
from trilogue.core.window import Budget, Window

FETCH_BYTES: Final = 1 << 20
FETCH_BYTES_MIN: Final = 4_096
EVERYTHING: Final = 1 << 62


class Source:
    """Where the lanes of one shard get their messages from."""

    def __init__(self, log: Log, store: Checkpoints, prefix: bytes, budget: Budget) -> None:
        self.log: Log = log
        self.store: Checkpoints = store
        self.prefix: bytes = prefix
        self.budget: Budget = budget
        self.parked: list[Lane] = []        # they wait for something to be written before they can read it

    def written(self) -> None:
        parked = self.parked
        if parked:
            self.parked = []
            for lane in parked:
                lane.fetching = False
                lane.owner.lane_ready()


@mypyc_attr(allow_interpreted_subclasses=True)
class LaneOwner(ABC):
    @abstractmethod
    def lane_ready(self) -> None:
        """Messages that were being read are in memory now, or must be asked for again."""

    @abstractmethod
    def lane_failed(self, error: Exception) -> None:
        """The log could not be read."""


class Piece:
    """What to deliver next: `count` messages of `run` from `start` on, beginning at `ordinal`. `again`: they may have been delivered before."""

    def __init__(self, ordinal: i64, run: Run, start: i64, count: i64, again: bool) -> None:
        self.ordinal: i64 = ordinal
        self.run: Run = run
        self.start: i64 = start
        self.count: i64 = count
        self.again: bool = again


class Fetch(BatchReader):
    """One read of the log on behalf of a lane, beginning with ordinal `want`, which lies at `offset`."""

    def __init__(self, lane: Lane, want: i64, offset: i64, ahead: bool) -> None:
        self.lane: Lane = lane
        self.want: i64 = want
        self.offset: i64 = offset
        self.ahead: bool = ahead            # reading on at the end of the window, as opposed to one message that fell out of it

    def batches(self, data: list[bytes], next_offset: i64, error: Exception | None) -> None:
        self.lane.fetched(self, data, error)


class Lane:
    def __init__(self, chain: Chain, source: Source, owner: LaneOwner) -> None:
        self.chain: Chain = chain
        self.source: Source = source
        self.owner: LaneOwner = owner
        self.cursor: i64 = chain.floor
        self.returned: Intervals = Intervals()
        self.window: Window = Window(source.budget)
        self.window.complete_to = chain.floor
        self.fetching: bool = False
        self.closed: bool = False
        self.safe_to: i64 = EVERYTHING      # delivery may go on up to here: the logged mark is, or will be, at least as far
        self.again_below: i64 = 0           # delivered by an earlier leader, perhaps
        self.mark: i64 = 0                  # highest `delivered_to` written so far
        self.marking: i64 = -1              # a mark on its way to the disk
        self.held: i64 = 0                  # delivered and not answered for
        self.held_size: i64 = 0
        self.acked_lo: list[int] = []       # settled since the last flush
        self.acked_hi: list[int] = []
        self.acked_size: i64 = 0
        self.dirty: bool = False
        self.timed: bool = False            # a message with a deadline of its own was in memory

    # -------------------------------------------------------------------------------------------- ready

    def ready(self) -> i64:
        """How many messages wait to be delivered."""
        chain = self.chain
        # The cursor follows the floor only when somebody looks, where settled messages are kept.
        start: i64 = self.cursor if self.cursor > chain.floor else chain.floor
        n: i64 = chain.next - start + self.returned.count
        if chain.done:
            for lo, hi in self.done_ranges():
                n -= hi - lo
        return n

    def ready_size(self) -> i64:
        """Bytes of what is ready: acknowledgements that wait for their flush no longer count."""
        return self.chain.size - self.acked_size - self.held_size

    def done_ranges(self) -> list[tuple[int, int]]:
        """Settled ranges at or above the cursor: what expired or was dropped out of turn."""
        done = self.chain.done
        out: list[tuple[int, int]] = []
        k = done.find(self.cursor)
        while k < len(done.lo):
            lo = done.lo[k]
            out.append((lo if lo > self.cursor else self.cursor, done.hi[k]))
            k += 1
        return out

    def head(self) -> i64:
        """The ordinal that is to be delivered next; -1 if there is none."""
        if self.returned:
            return self.returned.lo[0]
        self.skip_done()
        return self.cursor if self.cursor < self.chain.next else -1

    def skip_done(self) -> None:
        self.cursor = self.unsettled(self.cursor)

    def unsettled(self, ordinal: i64) -> i64:
        """The first ordinal from this one on that is not settled."""
        chain = self.chain
        if ordinal < chain.floor:
            ordinal = chain.floor
        if chain.done:
            k = chain.done.find(ordinal)
            if k < len(chain.done.lo) and chain.done.lo[k] <= ordinal:
                return chain.done.hi[k]
        return ordinal

    def peek(self) -> Piece | None:
        """What comes next, if it is in memory; else it is being read, and `lane_ready` follows."""
        ordinal = self.head()
        if ordinal < 0:
            return None
        back = bool(self.returned)
        entry = self.window.find(ordinal)
        if entry is None:
            self.fetch(ordinal, not back)
            return None
        start: i64 = ordinal - entry.first
        stop: i64 = self.returned.hi[0] if back else entry.end
        if stop > entry.end:
            stop = entry.end
        again = back or ordinal < self.again_below
        if not back:
            done = self.chain.done
            if done:
                k = done.find(ordinal)
                if k < len(done.lo) and done.lo[k] < stop:
                    stop = done.lo[k]
            if again and stop > self.again_below:
                stop = self.again_below
            if self.window.complete_to < self.chain.next and not self.fetching:
                self.read_ahead()
        return Piece(ordinal, entry.run, start, stop - ordinal, again)

    def take(self, piece: Piece, count: i64) -> None:
        """The first `count` messages of a piece are on their way to a consumer."""
        if self.returned:
            self.returned.remove(piece.ordinal, piece.ordinal + count)
        else:
            self.cursor = piece.ordinal + count
        window = self.window
        if window.size > window.budget.window_max:
            window.shed(self.cursor, self.source.log.written_offset())

    def put_back(self, lo: i64, hi: i64) -> None:
        self.returned.add(lo, hi)

    def rewound(self, to: i64) -> None:
        """Applied: what is kept from `to` on waits again, behind the cursor as returned. What somebody holds stays held."""
        for lo, hi in self.chain.kept_ranges(to):
            if lo < self.cursor:
                self.returned.add(lo, hi if hi < self.cursor else self.cursor)
        self.chain.rewind(to)

    # -------------------------------------------------------------------------------------------- memory

    def appended(self, first: i64, run: Run, wanted: bool) -> None:
        """A run was just applied to the chain, from ordinal `first` on."""
        self.window.push(first, run, wanted)
        if run.deadline_ms:
            self.timed = True

    def trim(self) -> None:
        """The chain's floor has moved."""
        floor = self.chain.kept_from()
        window = self.window
        if window.entries:
            window.trim(floor)
        if self.cursor < floor:
            self.cursor = floor
        if window.complete_to < self.cursor:
            window.complete_to = self.cursor

    def read_ahead(self) -> None:
        """Keep the next part of a backlog coming while this one is delivered."""
        window = self.window
        window.complete_to = self.unsettled(window.complete_to)
        if window.complete_to < self.chain.next and window.size * 2 < window.budget.window_max:
            self.fetch(window.complete_to, True)

    def fetch(self, ordinal: i64, ahead: bool) -> None:
        if self.fetching or self.closed:
            return
        try:
            offset, _ = self.chain.extent(ordinal, self.source.store, self.source.prefix)
        except (Corrupt, StoreError) as error:
            self.owner.lane_failed(error)
            return
        self.fetching = True
        if offset >= self.source.log.written_offset():
            self.source.parked.append(self)
            return
        # A short queue between others would mostly read what it has no use for.
        size: i64 = 2 * self.chain.size + FETCH_BYTES_MIN
        self.source.log.fetch(offset, size if size < FETCH_BYTES else FETCH_BYTES, Fetch(self, ordinal, offset, ahead))

    def fetched(self, fetch: Fetch, data: list[bytes], error: Exception | None) -> None:
        self.fetching = False
        if self.closed:
            return
        if error is None:
            try:
                self.keep(fetch, data)
            except (Corrupt, StoreError) as e:
                error = e
        if error is not None:
            self.owner.lane_failed(error)
        else:
            self.owner.lane_ready()

    def keep(self, fetch: Fetch, data: list[bytes]) -> None:
        """Take this chain's messages out of the batches that were read."""
        want = self.unsettled(fetch.want)
        if want > fetch.want:
            return                          # it was settled meanwhile
        stop = self.chain.next
        for batch in data:
            if want >= stop:
                break
            header = read_header(batch, 0)
            for record in decode(header, batch[RECORDS_AT:]):
                if want >= stop:
                    break
                want = self.keep_record(record, want, stop)
        if want == fetch.want:
            offset, _ = self.chain.extent(want, self.source.store, self.source.prefix)
            if offset != fetch.offset:
                return                      # it was carried forward meanwhile, and is asked for again
            raise Corrupt(f"message {want} of chain {self.chain.target} is not where the index says")
        if fetch.ahead and want > self.window.complete_to:
            self.window.complete_to = want

    def keep_record(self, record: Record, want: i64, stop: i64) -> i64:
        run = run_of(record)
        if run is None:
            return want
        first = record.offset
        count: i64 = len(run.spans)
        while want < stop:
            offset, follows_to = self.chain.extent(want, self.source.store, self.source.prefix)
            if offset < first or offset >= first + count:
                break
            n: i64 = follows_to - want
            if n > first + count - offset:
                n = first + count - offset
            run.offset = first
            if run.deadline_ms:
                self.timed = True
            self.window.insert(want, run if n == count else run.part(offset - first, offset - first + n))
            want = self.unsettled(want + n)
        return want

    def ordinal_at(self, offset: i64) -> i64:
        """The first ordinal whose message lies at or after an offset (where it was written, not where it was carried to)."""
        lo = self.chain.kept_from()
        hi = self.chain.next
        while lo < hi:
            m: i64 = (lo + hi) >> 1
            at, _ = self.chain.written_extent(m, self.source.store, self.source.prefix)
            if at < offset:
                lo = m + 1
            else:
                hi = m
        return lo

    def close(self) -> None:
        self.closed = True
        self.window.clear(0)


def run_of(record: Record) -> Run | None:
    """The message or messages in a record, if it has any."""
    if isinstance(record, Messages):
        return record.run
    if isinstance(record, HandedIn):
        return record.run if record.accepted else None
    if isinstance(record, Carried):
        return record.run
    return None
