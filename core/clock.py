"""Broker time: milliseconds since 1970 that never jump and never go back (RULES 9).

It runs with the clock that counts from the machine's start, sleep included, and leans towards the wall clock by at most one part in a hundred
until the two agree. Pure: both clocks are read by the caller (`cli/loop.py`) and passed in, in nanoseconds.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

SLEW_DIVISOR: Final = 100       # at most 1 % faster or slower than the boot clock
NS_PER_MS: Final = 1_000_000


class Clock:
    def __init__(self, boot_ns: i64, wall_ns: i64) -> None:
        self.boot_ns: i64 = boot_ns
        self.time_ns: i64 = wall_ns
        self.ahead_ns: i64 = 0              # of the wall clock, when it was last read

    def read(self, boot_ns: i64, wall_ns: i64) -> i64:
        """Broker time in milliseconds, now that the clocks show this."""
        elapsed: i64 = boot_ns - self.boot_ns
        if elapsed > 0:
            self.boot_ns = boot_ns
            lean: i64 = elapsed // SLEW_DIVISOR
            error: i64 = wall_ns - (self.time_ns + elapsed)
            if error > lean:
                error = lean
            elif error < -lean:
                error = -lean
            self.time_ns += elapsed + error
        self.ahead_ns = self.time_ns - wall_ns
        return self.time_ns // NS_PER_MS

    def raise_to(self, time_ms: i64) -> None:
        """Never below what a log already says. For the start only: afterwards nothing makes the time jump."""
        if self.time_ns < time_ms * NS_PER_MS:
            self.time_ns = time_ms * NS_PER_MS
