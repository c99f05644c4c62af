"""Threads and their stand-in run the same tasks in the same order; a task that must wait is called again."""

from __future__ import annotations

import asyncio
import threading

from trilogue.core.ports import Callback
from trilogue.store.worker import DirectPost, InlineWorker, LoopPost, Task, ThreadWorker


class Note(Task):
    def __init__(self, name: str, seen: list[str], refusals: int = 0) -> None:
        self.name = name
        self.seen = seen
        self.refusals = refusals

    def run(self) -> bool:
        if self.refusals:
            self.refusals -= 1
            return False
        self.seen.append(self.name)
        return True


class Done(Callback):
    def __init__(self, event: asyncio.Event) -> None:
        self.event = event
        self.thread = 0

    def fire(self) -> None:
        self.thread = threading.get_ident()
        self.event.set()


class Tell(Task):
    def __init__(self, post: LoopPost, done: Done) -> None:
        self.post = post
        self.done = done

    def run(self) -> bool:
        self.post.post(self.done)
        return True


def test_an_inline_worker_keeps_the_order_behind_a_task_that_waits() -> None:
    seen: list[str] = []
    worker = InlineWorker()
    worker.submit(Note("a", seen))
    worker.submit(Note("b", seen, refusals=1))
    worker.submit(Note("c", seen))
    assert seen == ["a"]
    worker.resume()
    assert seen == ["a", "b", "c"]


def test_a_thread_repeats_until_the_task_is_done_and_finishes_on_close() -> None:
    seen: list[str] = []
    worker = ThreadWorker("test")
    worker.submit(Note("a", seen))
    worker.submit(Note("b", seen))
    worker.close()
    assert seen == ["a", "b"]


def test_closing_does_not_wait_for_a_task_that_cannot_end() -> None:
    seen: list[str] = []
    worker = ThreadWorker("test")
    worker.submit(Note("never", seen, refusals=1 << 60))
    worker.close()
    assert seen == []


def test_answers_arrive_on_the_loop() -> None:
    async def scenario() -> tuple[int, int]:
        done = Done(asyncio.Event())
        worker = ThreadWorker("test")
        worker.submit(Tell(LoopPost(asyncio.get_running_loop()), done))
        await asyncio.wait_for(done.event.wait(), 10)
        worker.close()
        return done.thread, threading.get_ident()

    thread, expected = asyncio.run(scenario())
    assert thread == expected


def test_an_answer_for_a_closed_loop_is_dropped() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    done = Done(asyncio.Event())
    LoopPost(loop).post(done)
    assert not done.event.is_set()
    DirectPost().post(done)
    assert done.event.is_set()
