"""A live subscription: fed from memory as messages pass by, without a queue and without the disk."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import i64, mypyc_attr

from trilogue.core.message import Run


@mypyc_attr(allow_interpreted_subclasses=True)
class LiveSubscriber(ABC):
    """Frontends subclass it. `id` is given by the broker, and is what the router knows it by."""

    def __init__(self) -> None:
        self.id: i64 = 0
        self.dropped: i64 = 0           # what it missed because it was too slow

    @abstractmethod
    def room(self) -> bool:
        """False while its buffer is full: what passes by meanwhile is counted and lost."""

    @abstractmethod
    def deliver(self, run: Run) -> None: ...
