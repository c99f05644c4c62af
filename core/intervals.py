"""A set of integers kept as sorted, disjoint, non-touching half-open ranges.

What a queue has settled above its floor, and what was given back to it, are such sets: any order of single numbers costs one binary
search each, and consecutive ones collapse to one range.
"""

from __future__ import annotations

from mypy_extensions import i64


class Intervals:
    def __init__(self) -> None:
        self.lo: list[int] = []
        self.hi: list[int] = []
        self.count: i64 = 0

    def __len__(self) -> int:
        return len(self.lo)

    def __bool__(self) -> bool:
        return len(self.lo) > 0

    def find(self, n: i64) -> i64:
        """The index of the first range that ends above `n` (so it contains `n` or lies after it)."""
        a: i64 = 0
        z: i64 = len(self.hi)
        while a < z:
            m: i64 = (a + z) >> 1
            if self.hi[m] <= n:
                a = m + 1
            else:
                z = m
        return a

    def contains(self, n: i64) -> bool:
        k = self.find(n)
        return k < len(self.lo) and self.lo[k] <= n

    def add(self, lo: i64, hi: i64) -> i64:
        """Add [lo, hi) and return how many of its numbers are new."""
        if lo >= hi:
            return 0
        k: i64 = len(self.hi)
        if k and self.hi[k - 1] >= lo:
            k = self.find(lo - 1)
        first: i64 = k
        start: i64 = lo
        end: i64 = hi
        known: i64 = 0
        n: i64 = len(self.lo)
        while k < n and self.lo[k] <= hi:
            a: i64 = self.lo[k]
            z: i64 = self.hi[k]
            known += (z if z < hi else hi) - (a if a > lo else lo)
            start = a if a < start else start
            end = z if z > end else end
            k += 1
        if k == first + 1:
            self.lo[first] = start
            self.hi[first] = end
        else:
            self.lo[first:k] = [start]
            self.hi[first:k] = [end]
        new: i64 = hi - lo - known
        self.count += new
        return new

    def remove(self, lo: i64, hi: i64) -> i64:
        """Take [lo, hi) out and return how many of its numbers were there."""
        if lo >= hi:
            return 0
        k = self.find(lo)
        first = k
        n: i64 = len(self.lo)
        keep_lo: list[int] = []
        keep_hi: list[int] = []
        gone: i64 = 0
        while k < n and self.lo[k] < hi:
            a: i64 = self.lo[k]
            z: i64 = self.hi[k]
            gone += (z if z < hi else hi) - (a if a > lo else lo)
            if a < lo:
                keep_lo.append(a)
                keep_hi.append(lo)
            if z > hi:
                keep_lo.append(hi)
                keep_hi.append(z)
            k += 1
        if k > first:
            self.lo[first:k] = keep_lo
            self.hi[first:k] = keep_hi
        self.count -= gone
        return gone

    def pop_below(self, floor: i64) -> i64:
        """Forget everything below `floor`, and return the floor raised past a range that begins at or below it."""
        k = self.find(floor)
        if k < len(self.lo) and self.lo[k] <= floor:
            floor = self.hi[k]
            k += 1
        j: i64 = 0
        while j < k:
            self.count -= self.hi[j] - self.lo[j]
            j += 1
        if k:
            del self.lo[:k]
            del self.hi[:k]
        return floor

    def missing(self, lo: i64, hi: i64) -> list[tuple[int, int]]:
        """The parts of [lo, hi) that are not in the set."""
        out: list[tuple[int, int]] = []
        k = self.find(lo)
        at: i64 = lo
        n: i64 = len(self.lo)
        while at < hi and k < n and self.lo[k] < hi:
            a: i64 = self.lo[k]
            if a > at:
                out.append((at, a))
            at = self.hi[k]
            k += 1
        if at < hi:
            out.append((at, hi))
        return out

    def clear(self) -> None:
        self.lo = []
        self.hi = []
        self.count = 0
