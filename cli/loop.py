"""The core's `Scheduler` on asyncio, with broker time from the machine's clocks, and the threads in which passwords are hashed."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future, ThreadPoolExecutor

from trilogue.core.access import Login
from trilogue.core.clock import Clock
from trilogue.core.frontend import LoginWaiter, Verifier
from trilogue.core.ports import Callback, Scheduler, Timer

HASHING_THREADS = 2
# Counts on while the machine sleeps, which the monotonic clock does not. Only Linux has it.
BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class LoopTimer(Timer):
    def __init__(self, handle: asyncio.TimerHandle) -> None:
        self.handle = handle

    def cancel(self) -> None:
        self.handle.cancel()


class LoopScheduler(Scheduler):
    """The clocks are read once per turn of the loop: everything that happens in a turn happens at one time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.clock = Clock(time.clock_gettime_ns(BOOT_CLOCK), time.time_ns())
        self._now_ms = 0
        self._fresh = False

    def call_soon(self, callback: Callback) -> None:
        self.loop.call_soon(callback.fire)

    def call_later(self, delay_s: float, callback: Callback) -> Timer:
        return LoopTimer(self.loop.call_later(delay_s, callback.fire))

    def now_ms(self) -> int:
        if not self._fresh:
            self._now_ms = int(self.clock.read(time.clock_gettime_ns(BOOT_CLOCK), time.time_ns()))
            self._fresh = True
            self.loop.call_soon(self._turn_over)
        return self._now_ms

    def raise_to(self, time_ms: int) -> None:
        self.clock.raise_to(time_ms)
        self._fresh = False

    def _turn_over(self) -> None:
        self._fresh = False


class ThreadVerifier(Verifier):
    """Hashes passwords beside the loop. Few threads: somebody who tries many passwords may slow down logins, not messages."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(HASHING_THREADS, "trilogue-login")

    def verify(self, login: Login, waiter: LoginWaiter) -> None:
        def done(future: Future[None]) -> None:
            try:
                self._loop.call_soon_threadsafe(self._finish, future, login, waiter)
            except RuntimeError:
                if not self._loop.is_closed():
                    raise

        self._pool.submit(login.verify).add_done_callback(done)

    def _finish(self, future: Future[None], login: Login, waiter: LoginWaiter) -> None:
        if not future.cancelled():
            future.result()
            waiter.verified(login)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
