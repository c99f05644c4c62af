from __future__ import annotations

import asyncio
import threading
import time

import pytest

from trilogue.core.access import Login
from trilogue.core.frontend import LoginWaiter
from trilogue.core.passwords import ARGON2ID, hash_password
from trilogue.core.ports import Callback
from trilogue.loop import LoopScheduler, ThreadVerifier


class Note(Callback):
    def __init__(self, notes: list[str], text: str) -> None:
        self.notes = notes
        self.text = text

    def fire(self) -> None:
        self.notes.append(self.text)


class Waiter(LoginWaiter):
    def __init__(self) -> None:
        self.done = asyncio.Event()
        self.thread = 0

    def verified(self, login: Login) -> None:
        self.thread = threading.get_ident()
        self.done.set()


def test_callbacks_come_in_order_and_can_be_cancelled() -> None:
    async def run() -> list[str]:
        scheduler = LoopScheduler(asyncio.get_running_loop())
        notes: list[str] = []
        scheduler.call_soon(Note(notes, "a"))
        scheduler.call_soon(Note(notes, "b"))
        scheduler.call_later(0.0, Note(notes, "later"))
        scheduler.call_later(0.0, Note(notes, "never")).cancel()
        await asyncio.sleep(0.01)
        return notes

    assert asyncio.run(run()) == ["a", "b", "later"]


def test_time_stands_still_within_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        scheduler = LoopScheduler(asyncio.get_running_loop())
        first = scheduler.now_ms()
        assert abs(first - time.time_ns() // 1_000_000) < 60_000
        scheduler.clock.raise_to(first + 5_000)
        assert scheduler.now_ms() == first
        await asyncio.sleep(0)
        assert scheduler.now_ms() >= first + 5_000
        scheduler.raise_to(first + 10_000)
        assert scheduler.now_ms() >= first + 10_000

    asyncio.run(run())


def test_passwords_are_hashed_beside_the_loop() -> None:
    async def run() -> None:
        verifier = ThreadVerifier(asyncio.get_running_loop())
        waiter = Waiter()
        login = Login("u", "p", ARGON2ID, hash_password("p"), True, b"")
        verifier.verify(login, waiter)
        assert not waiter.done.is_set()
        await asyncio.wait_for(waiter.done.wait(), 30)
        assert login.verified
        assert waiter.thread == threading.get_ident()
        verifier.close()

    asyncio.run(run())
