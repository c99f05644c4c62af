"""The part of a chain that is in memory: runs, by the ordinal they begin with. Never the truth, always a copy of what the log holds or will hold."""

from __future__ import annotations

from mypy_extensions import i64

from trilogue.core.message import Run


class Budget:
    """Bytes that all windows of a node hold together."""

    def __init__(self, total_max: i64, window_max: i64) -> None:
        self.used: i64 = 0
        self.total_max: i64 = total_max
        self.window_max: i64 = window_max


class Entry:
    """The messages `run[0:]` of a chain, beginning at ordinal `first`."""

    def __init__(self, first: i64, run: Run) -> None:
        self.first: i64 = first
        self.run: Run = run
        self.end: i64 = first + len(run.spans)


class Window:
    """Sorted, disjoint entries. `complete_to`: everything from the cursor up to here is in memory."""

    def __init__(self, budget: Budget) -> None:
        self.budget: Budget = budget
        self.entries: list[Entry] = []
        self.size: i64 = 0
        self.at: i64 = 0                # a guess: the entry used last
        self.complete_to: i64 = 0

    def push(self, first: i64, run: Run, wanted: bool) -> None:
        """Offer a run that was just appended. It is kept if nothing before it is missing and there is room, or a consumer waits for it."""
        if self.complete_to != first:
            return
        if not wanted and (self.size >= self.budget.window_max or self.budget.used >= self.budget.total_max):
            return
        self.entries.append(Entry(first, run))
        self.grow(run.size)
        self.complete_to = first + len(run.spans)

    def insert(self, first: i64, run: Run) -> None:
        """Keep a run that was read from the log, unless it is there already."""
        k = self.index(first)
        if k >= 0 and self.entries[k].end > first:
            return
        self.entries.insert(k + 1, Entry(first, run))
        if k + 1 <= self.at:
            self.at += 1
        self.grow(run.size)

    def grow(self, n: i64) -> None:
        self.size += n
        self.budget.used += n

    def index(self, ordinal: i64) -> i64:
        """The last entry that begins at or before `ordinal`; -1 if there is none."""
        entries = self.entries
        n: i64 = len(entries)
        at = self.at
        if at < n and entries[at].first <= ordinal:
            if at + 1 >= n or ordinal < entries[at + 1].first:
                return at
            if at + 2 >= n or ordinal < entries[at + 2].first:
                return at + 1
        a: i64 = 0
        z: i64 = n
        while a < z:
            m: i64 = (a + z) >> 1
            if entries[m].first <= ordinal:
                a = m + 1
            else:
                z = m
        return a - 1

    def find(self, ordinal: i64) -> Entry | None:
        k = self.index(ordinal)
        if k < 0:
            return None
        entry = self.entries[k]
        if entry.end <= ordinal:
            return None
        self.at = k
        return entry

    def trim(self, floor: i64) -> None:
        """Drop what lies wholly below `floor`."""
        k: i64 = 0
        n: i64 = len(self.entries)
        freed: i64 = 0
        while k < n and self.entries[k].end <= floor:
            freed += self.entries[k].run.size
            k += 1
        self.cut(k, freed)

    def shed(self, cursor: i64, written: i64) -> None:
        """Too large: drop delivered runs that can be read from the log again, oldest first."""
        k: i64 = 0
        n: i64 = len(self.entries)
        freed: i64 = 0
        over: i64 = self.size - self.budget.window_max
        while k < n and freed < over:
            entry = self.entries[k]
            if entry.end > cursor or entry.run.offset + len(entry.run.spans) > written:
                break
            freed += entry.run.size
            k += 1
        self.cut(k, freed)

    def cut(self, k: i64, freed: i64) -> None:
        if k:
            del self.entries[:k]
            self.at = self.at - k if self.at > k else 0
            self.grow(-freed)

    def clear(self, complete_to: i64) -> None:
        self.grow(-self.size)
        self.entries = []
        self.at = 0
        self.complete_to = complete_to
