"""What somebody was given and has not answered for: segments of consecutive delivery tags that hold consecutive ordinals of one lane.

An acknowledgement in any order splits, shrinks or removes a segment. One object exists per delivered piece of a run, not per message.
"""

from __future__ import annotations

from librt.vecs import append, vec
from mypy_extensions import i32, i64

from trilogue.core.lane import Lane
from trilogue.core.message import Run

NO_SIZES: vec[i32] = vec[i32]()


class Held:
    """`count` messages from `tag` and from `ordinal` on. `size` is each message's size, or -1: then `sizes` has them from `at` on."""

    def __init__(self, tag: i64, lane: Lane, ordinal: i64, count: i64, size: i64, sizes: vec[i32], at: i64, owner: object) -> None:
        self.tag: i64 = tag
        self.lane: Lane = lane
        self.ordinal: i64 = ordinal
        self.count: i64 = count
        self.size: i64 = size
        self.sizes: vec[i32] = sizes
        self.at: i64 = at
        self.owner: object = owner          # whoever counts its credit, the consumer

    def bytes_of(self, skip: i64, count: i64) -> i64:
        if self.size >= 0:
            return self.size * count
        total: i64 = 0
        k: i64 = self.at + skip
        stop: i64 = k + count
        while k < stop:
            total += i64(self.sizes[k])
            k += 1
        return total

    def part(self, skip: i64, count: i64) -> Held:
        return Held(self.tag + skip, self.lane, self.ordinal + skip, count, self.size, self.sizes, self.at + skip, self.owner)


def hold(tag: i64, lane: Lane, ordinal: i64, run: Run, start: i64, count: i64, owner: object) -> Held:
    """Remember `count` messages of a run as delivered under `tag` and following."""
    spans = run.spans
    size: i64 = len(spans[start])
    if size * len(spans) == run.size and count > 1:
        k: i64 = start + 1
        stop: i64 = start + count
        while k < stop and len(spans[k]) == size:
            k += 1
        if k == stop:
            return Held(tag, lane, ordinal, count, size, NO_SIZES, 0, owner)
    if count == 1:
        return Held(tag, lane, ordinal, 1, size, NO_SIZES, 0, owner)
    sizes: vec[i32] = vec[i32]()
    k = start
    stop = start + count
    while k < stop:
        sizes = append(sizes, i32(len(spans[k])))
        k += 1
    return Held(tag, lane, ordinal, count, -1, sizes, 0, owner)


class Unacked:
    """Everything that one channel, session or connection holds, by tag."""

    def __init__(self) -> None:
        self.held: list[Held] = []
        self.count: i64 = 0

    def add(self, held: Held) -> None:
        self.held.append(held)
        self.count += held.count

    def find(self, tag: i64) -> i64:
        """The index of the segment that holds `tag`; -1 if nobody holds it."""
        n: i64 = len(self.held)
        if n == 0:
            return -1
        a: i64 = 0
        z: i64 = n
        if self.held[0].tag + self.held[0].count <= tag:
            while z - a > 1:
                m: i64 = (a + z) >> 1
                if self.held[m].tag <= tag:
                    a = m
                else:
                    z = m
        held = self.held[a]
        if held.tag <= tag < held.tag + held.count:
            return a
        return -1

    def holds_upto(self, tag: i64) -> bool:
        """Is anything held at or below `tag`?"""
        return len(self.held) > 0 and self.held[0].tag <= tag

    def take(self, lo: i64, hi: i64) -> list[Held] | None:
        """Take the tags [lo, hi] out; None, and nothing is taken, if one of them is not held."""
        out: list[Held] = []
        tag: i64 = lo
        k = self.find(lo)
        check: i64 = k
        while tag <= hi:
            if check < 0 or check >= len(self.held) or self.held[check].tag > tag:
                return None
            tag = self.held[check].tag + self.held[check].count
            check += 1
        tag = lo
        while tag <= hi:
            held = self.held[k]
            skip: i64 = tag - held.tag
            count: i64 = held.count - skip
            if tag + count - 1 > hi:
                count = hi - tag + 1
            out.append(held.part(skip, count))
            left: i64 = held.count - skip - count
            if skip == 0 and left == 0:
                self.held.pop(k)
            elif skip == 0:
                self.held[k] = held.part(count, left)
            else:
                if left:
                    self.held.insert(k + 1, held.part(skip + count, left))
                held.count = skip
                k += 1
            self.count -= count
            tag += count
        return out

    def take_upto(self, tag: i64) -> list[Held]:
        """Take everything held at or below `tag` out, oldest first."""
        k: i64 = 0
        n: i64 = len(self.held)
        taken: i64 = 0
        while k < n and self.held[k].tag + self.held[k].count - 1 <= tag:
            taken += self.held[k].count
            k += 1
        out = self.held[:k]
        if k < n and self.held[k].tag <= tag:
            held = self.held[k]
            count: i64 = tag - held.tag + 1
            out.append(held.part(0, count))
            self.held[k] = held.part(count, held.count - count)
            taken += count
        if k:
            del self.held[:k]
        self.count -= taken
        return out

    def restore(self, helds: list[Held]) -> None:
        """Put back what was taken out, in its place."""
        for held in helds:
            self.count += held.count
        self.held.extend(helds)
        self.held.sort(key=tag_of)

    def take_all(self) -> list[Held]:
        out = self.held
        self.held = []
        self.count = 0
        return out


def tag_of(held: Held) -> int:
    return int(held.tag)
