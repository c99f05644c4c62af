"""Who does the store's work: a thread per duty in a node, nobody but the caller in a simulation. Results go to the loop through a `Post`."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from queue import SimpleQueue
from typing import Final

from mypy_extensions import mypyc_attr

from trilogue.core.ports import Callback

RETRY_S: Final = 0.25


@mypyc_attr(allow_interpreted_subclasses=True)
class Post(ABC):
    """The way back: has a callback called on the loop, in the order of posting. Safe from any thread."""

    @abstractmethod
    def post(self, callback: Callback) -> None: ...


class LoopPost(Post):
    """The way back to an asyncio loop. After the loop has closed nobody waits for answers any more, so they are dropped."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop: asyncio.AbstractEventLoop = loop

    def post(self, callback: Callback) -> None:
        try:
            self.loop.call_soon_threadsafe(callback.fire)
        except RuntimeError:
            if not self.loop.is_closed():
                raise


class DirectPost(Post):
    """Calls at once: for tools and tests that have no loop."""

    def post(self, callback: Callback) -> None:
        callback.fire()


@mypyc_attr(allow_interpreted_subclasses=True)
class Task(ABC):
    """A piece of work away from the loop."""

    @abstractmethod
    def run(self) -> bool:
        """Do it. False: it cannot be finished now (a full disk) and wants to be called again in `RETRY_S`."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Worker(ABC):
    """Runs tasks one after the other, in order."""

    @abstractmethod
    def submit(self, task: Task) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Finish what was submitted; a task that can only wait is given up."""


class ThreadWorker(Worker):
    def __init__(self, name: str) -> None:
        self.queue: SimpleQueue[Task | None] = SimpleQueue()
        self.closing: threading.Event = threading.Event()
        self.thread: threading.Thread = threading.Thread(target=self.work, name=name, daemon=True)
        self.thread.start()

    def submit(self, task: Task) -> None:
        self.queue.put(task)

    def work(self) -> None:
        while True:
            task = self.queue.get()
            if task is None:
                return
            while not task.run():
                if self.closing.wait(RETRY_S):
                    break

    def close(self) -> None:
        self.closing.set()
        self.queue.put(None)
        self.thread.join()


class InlineWorker(Worker):
    """Runs a task when it is submitted. One that has to wait stays, with all behind it, until `resume`."""

    def __init__(self) -> None:
        self.waiting: list[Task] = []

    def submit(self, task: Task) -> None:
        self.waiting.append(task)
        if len(self.waiting) == 1:
            self.resume()

    def resume(self) -> None:
        while self.waiting and self.waiting[0].run():
            self.waiting.pop(0)

    def close(self) -> None:
        self.resume()
        self.waiting = []
