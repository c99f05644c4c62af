"""One chain of messages: the durable state of a queue at one priority level.

Messages are numbered densely by *ordinal*, in the order `apply` gave them to the chain. What is settled is a floor plus ranges above it.
Where a message lies in the log is told by *extents*: from ordinal `ords[k]` on, offsets run on from `offs[k]`. Extents are kept in blocks;
a full block goes to the checkpoint store once and leaves memory, so that ten million waiting messages cost almost none.

Only `apply` changes a chain (`add`, `settle`, `give_back`, `move`, `release`, `rewind`); none of these ever loads a block.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i64_be, write_i64_be
from librt.vecs import append, vec
from mypy_extensions import i64

from trilogue.core.errors import Corrupt
from trilogue.core.intervals import Intervals
from trilogue.core.ports import Checkpoints

BLOCK_EXTENTS: Final = 512
KEPT_LOADED: Final = 2          # blocks at each end of a chain that stay in memory


class Block:
    """Up to `BLOCK_EXTENTS` extents, beginning at ordinal `first`. Once `stored`, the arrays may be dropped and loaded again."""

    def __init__(self, first: i64) -> None:
        self.first: i64 = first
        self.ords: vec[i64] = vec[i64]()
        self.offs: vec[i64] = vec[i64]()
        self.loaded: bool = True
        self.stored: bool = False

    def encode(self) -> bytes:
        w = BytesWriter()
        k: i64 = 0
        n: i64 = len(self.ords)
        while k < n:
            write_i64_be(w, self.ords[k])
            write_i64_be(w, self.offs[k])
            k += 1
        return w.getvalue()

    def decode(self, data: bytes) -> None:
        if len(data) % 16:
            raise Corrupt("an index block has an odd length")
        ords: vec[i64] = vec[i64]()
        offs: vec[i64] = vec[i64]()
        at: i64 = 0
        while at < len(data):
            ords = append(ords, read_i64_be(data, at))
            offs = append(offs, read_i64_be(data, at + 8))
            at += 16
        self.ords = ords
        self.offs = offs
        self.loaded = True

    def unload(self) -> None:
        self.ords = vec[i64]()
        self.offs = vec[i64]()
        self.loaded = False


class Liveness:
    """How many messages each segment still owes to somebody. Derived state: rebuilt from the chains at recovery."""

    def __init__(self) -> None:
        self.bases: list[int] = []
        self.live: dict[int, int] = {}
        self.total: i64 = 0

    def opened(self, base: i64) -> None:
        if base not in self.live:
            self.live[base] = 0
            self.bases.append(base)
            self.bases.sort()

    def change(self, base: i64, n: i64) -> None:
        self.total += n
        self.live[base] = self.live.get(base, 0) + n

    def base_of(self, offset: i64) -> i64:
        """The segment that an offset lies in."""
        a: i64 = 0
        z: i64 = len(self.bases)
        while z - a > 1:
            m: i64 = (a + z) >> 1
            if self.bases[m] <= offset:
                a = m
            else:
                z = m
        return self.bases[a]

    def closed(self, base: i64) -> None:
        self.live.pop(base, None)
        self.bases.remove(base)


class Chain:
    def __init__(self, target: i64, liveness: Liveness) -> None:
        self.target: i64 = target
        self.liveness: Liveness = liveness
        self.next: i64 = 0              # ordinal of the next message
        self.floor: i64 = 0             # everything below is settled
        self.done: Intervals = Intervals()
        self.delivered_to: i64 = 0      # logged mark: below it a message may have been delivered before
        self.size: i64 = 0              # bytes of what is not settled
        self.counts: dict[int, int] = {}    # delivery counts of messages that came back
        self.keeps: bool = False        # settled messages from `released` on stay until they are released
        self.released: i64 = 0          # above the floor while what was there before keeping began is not settled
        self.kept_size: i64 = 0         # bytes of what is settled and kept
        self.timed_to: i64 = 0          # from here on no message has a deadline of its own
        self.blocks: list[Block] = []
        self.dropped: list[int] = []    # first ordinals of stored blocks that are no longer needed
        self.moved: dict[int, int] = {}     # ordinal -> offset, where it was carried to
        self.seg_base: list[int] = []   # segments in which this chain has messages, and
        self.seg_first: list[int] = []  # the ordinal it begins with in each

    # -------------------------------------------------------------------------------------------- apply

    def add(self, offset: i64, count: i64, size: i64, base: i64) -> None:
        """`count` messages at consecutive offsets in segment `base`."""
        ordinal = self.next
        self.extend_index(ordinal, offset)
        n: i64 = len(self.seg_base)
        if n == 0 or self.seg_base[n - 1] != base:
            self.seg_base.append(base)
            self.seg_first.append(ordinal)
        self.liveness.change(base, count)
        self.next = ordinal + count
        self.size += size

    def extend_index(self, ordinal: i64, offset: i64) -> None:
        n: i64 = len(self.blocks)
        if n == 0:
            block = Block(ordinal)
            self.blocks.append(block)
        else:
            block = self.blocks[n - 1]
            k: i64 = len(block.ords)
            if k and block.offs[k - 1] + (ordinal - block.ords[k - 1]) == offset:
                return
            if k >= BLOCK_EXTENTS:
                block = Block(ordinal)
                self.blocks.append(block)
        block.ords = append(block.ords, ordinal)
        block.offs = append(block.offs, offset)

    def settle(self, lo: i64, hi: i64) -> i64:
        """[lo, hi) needs no delivery any more; returns how many of them were not settled before."""
        if lo < self.floor:
            lo = self.floor
        if hi > self.next:
            hi = self.next
        if lo >= hi:
            return 0
        owed: i64 = hi                  # below, settled is no longer live
        if self.keeps and self.released < hi:
            owed = self.released
        if lo == self.floor and not self.done:
            fresh: i64 = hi - lo
            if lo < owed:
                self.unlive(lo, owed)
            self.floor = hi
        else:
            if lo < owed:
                for a, z in self.done.missing(lo, owed):
                    self.unlive(a, z)
            fresh = self.done.add(lo, hi)
            self.floor = self.done.pop_below(self.floor)
        if self.counts:
            self.forget_counts(lo, hi)
        self.trim()
        if self.floor == self.next:
            self.size = 0
        return fresh

    def forget_counts(self, lo: i64, hi: i64) -> None:
        counts = self.counts
        if hi - lo < len(counts):
            o: i64 = lo
            while o < hi:
                counts.pop(o, None)
                o += 1
        else:
            for ordinal in [k for k in counts if lo <= k < hi]:
                del counts[ordinal]

    def unlive(self, lo: i64, hi: i64) -> None:
        """Tell the segments that [lo, hi) is no longer owed."""
        if self.moved:
            self.unlive_moved(lo, hi)
            return
        k: i64 = len(self.seg_first) - 1
        while k > 0 and self.seg_first[k] > lo:
            k -= 1
        n: i64 = len(self.seg_first)
        while lo < hi:
            stop: i64 = self.seg_first[k + 1] if k + 1 < n else hi
            if stop > hi:
                stop = hi
            self.liveness.change(self.seg_base[k], lo - stop)
            lo = stop
            k += 1

    def unlive_moved(self, lo: i64, hi: i64) -> None:
        moved = self.moved
        ordinals = [k for k in moved if lo <= k < hi] if len(moved) < hi - lo else [k for k in range(lo, hi) if k in moved]
        ordinals.sort()
        self.moved = {}
        for ordinal in ordinals:
            self.unlive(lo, ordinal)
            self.liveness.change(self.liveness.base_of(moved.pop(ordinal)), -1)
            lo = ordinal + 1
        self.unlive(lo, hi)
        self.moved = moved

    def kept_from(self) -> i64:
        """The first ordinal whose message may still be needed."""
        return self.released if self.keeps and self.released < self.floor else self.floor

    def trim(self) -> None:
        """Drop index blocks and segments that lie wholly below what is needed."""
        need = self.kept_from()
        k: i64 = 0
        last: i64 = len(self.blocks) - 1
        while k < last and self.blocks[k + 1].first <= need:
            if self.blocks[k].stored:
                self.dropped.append(self.blocks[k].first)
            k += 1
        if k:
            del self.blocks[:k]
        if len(self.blocks) == 1 and need == self.next:
            if self.blocks[0].stored:
                self.dropped.append(self.blocks[0].first)
            self.blocks = []
        k = 0
        last = len(self.seg_first) - 1
        while k < last and self.seg_first[k + 1] <= need:
            k += 1
        if k:
            del self.seg_first[:k]
            del self.seg_base[:k]

    def give_back(self, lo: i64, hi: i64) -> None:
        """[lo, hi) was delivered and came back: one more delivery counted for each."""
        o: i64 = lo
        while o < hi:
            self.counts[o] = self.counts.get(o, 0) + 1
            o += 1

    def move(self, ordinal: i64, offset: i64, base: i64) -> None:
        """The message now lies at `offset`, in segment `base`."""
        if not self.owes(ordinal):
            return
        old = self.moved.pop(ordinal, -1)
        if old >= 0:
            self.liveness.change(self.liveness.base_of(old), -1)
        else:
            self.unlive(ordinal, ordinal + 1)
        self.moved[ordinal] = offset
        self.liveness.change(base, 1)

    def owes(self, ordinal: i64) -> bool:
        """Is the message still to be delivered, or kept?"""
        if self.keeps and self.released <= ordinal < self.next:
            return True
        return self.floor <= ordinal < self.next and not self.done.contains(ordinal)

    def set_keeps(self, keeps: bool) -> None:
        if keeps == self.keeps:
            return
        if keeps:
            # What is there already was, or will be, settled for good: its segment may be gone before the keeping ends.
            self.released = self.next
        else:
            for lo, hi in self.kept_ranges(self.released):
                self.unlive(lo, hi)
            self.kept_size = 0
        self.keeps = keeps
        self.trim()

    def kept_ranges(self, start: i64) -> list[tuple[int, int]]:
        """What is settled and kept, from `start` on."""
        out: list[tuple[int, int]] = []
        if not self.keeps:
            return out
        if start < self.released:
            start = self.released
        if start < self.floor:
            out.append((start, self.floor))
        for k in range(len(self.done.lo)):
            if self.done.hi[k] > start:
                out.append((max(self.done.lo[k], start), self.done.hi[k]))
        return out

    def live_ranges(self, lo: i64, hi: i64) -> list[tuple[int, int]]:
        """The parts of [lo, hi) that are owed or kept."""
        if lo < self.kept_from():
            lo = self.kept_from()
        owed: i64 = hi
        if self.keeps and self.released < hi:
            owed = self.released
        out: list[tuple[int, int]] = []
        if lo < owed:
            start: i64 = lo if lo > self.floor else self.floor
            if start < owed:
                out = self.done.missing(start, owed)
            lo = owed
        if lo < hi:
            out.append((lo, hi))
        return out

    def release(self, upto: i64) -> None:
        """Settled messages below `upto` are no longer kept."""
        if upto > self.floor:
            upto = self.floor
        if self.keeps and upto > self.released:
            self.kept_size -= self.share_of_kept(upto - self.released)
            self.unlive(self.released, upto)
            self.released = upto
            self.trim()

    def share_of_kept(self, count: i64) -> i64:
        """The bytes of so many kept messages: exact for all of them, else by their mean size, since nobody knows each one's."""
        total: i64 = 0
        for lo, hi in self.kept_ranges(self.released):
            total += hi - lo
        return self.kept_size * count // total if total else 0

    def rewind(self, to: i64) -> i64:
        """Everything kept from `to` on is waiting again; returns how many messages that brings back."""
        if not self.keeps:
            return 0
        if to < self.released:
            to = self.released
        if to > self.next:
            to = self.next
        back: i64 = 0
        for lo, hi in self.kept_ranges(to):
            back += hi - lo
        size = self.share_of_kept(back)
        self.kept_size -= size
        self.size += size
        self.done.remove(to, self.next)
        if to < self.floor:
            self.floor = to
        return back

    def lose_size(self, size: i64) -> None:
        """So many bytes are settled."""
        if size > self.size:
            size = self.size        # after a rewind the size is an estimate
        self.size -= size
        if self.keeps:
            self.kept_size += size

    def abandon(self) -> None:
        """The queue is gone: nothing of it is owed or kept any longer."""
        self.settle(self.floor, self.next)
        self.release(self.next)
        for block in self.blocks:
            if block.stored:
                self.dropped.append(block.first)
        self.blocks = []

    # -------------------------------------------------------------------------------------------- look

    def waiting(self) -> i64:
        """Messages that are not settled."""
        return self.next - self.floor - self.done.count

    def extent(self, ordinal: i64, store: Checkpoints, prefix: bytes) -> tuple[i64, i64]:
        """Where `ordinal` lies, and the first ordinal after it that does not follow on from there."""
        if self.moved:
            offset: i64 = self.moved.get(ordinal, -1)
            if offset >= 0:
                return offset, ordinal + 1
        offset, stop = self.written_extent(ordinal, store, prefix)
        for carried in self.moved:
            if ordinal < carried < stop:
                stop = carried
        return offset, stop

    def written_extent(self, ordinal: i64, store: Checkpoints, prefix: bytes) -> tuple[i64, i64]:
        """The same as if nothing had been carried."""
        a: i64 = 0
        z: i64 = len(self.blocks)
        while z - a > 1:
            m: i64 = (a + z) >> 1
            if self.blocks[m].first <= ordinal:
                a = m
            else:
                z = m
        block = self.blocks[a]
        if not block.loaded:
            self.load(block, store, prefix)
        stop: i64 = self.blocks[a + 1].first if a + 1 < len(self.blocks) else self.next
        lo: i64 = 0
        hi: i64 = len(block.ords)
        while hi - lo > 1:
            m = (lo + hi) >> 1
            if block.ords[m] <= ordinal:
                lo = m
            else:
                hi = m
        if lo + 1 < len(block.ords):
            stop = block.ords[lo + 1]
        return block.offs[lo] + (ordinal - block.ords[lo]), stop

    def load(self, block: Block, store: Checkpoints, prefix: bytes) -> None:
        data = store.get(block_key(prefix, self.target, block.first))
        if data is None:
            raise Corrupt(f"index block {block.first} of chain {self.target} is missing")
        block.decode(data)

    def unload_blocks(self) -> None:
        """Free the memory of stored blocks that are far from both ends."""
        k: i64 = KEPT_LOADED
        n: i64 = len(self.blocks) - KEPT_LOADED
        while k < n:
            block = self.blocks[k]
            if block.loaded and block.stored:
                block.unload()
            k += 1


def block_key(prefix: bytes, target: i64, first: i64) -> bytes:
    w = BytesWriter()
    w.write(prefix)
    w.write(b"B")
    write_i64_be(w, target)
    write_i64_be(w, first)
    return w.getvalue()
