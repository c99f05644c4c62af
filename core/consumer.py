"""Somebody who takes messages from a queue: the one callback from the core back up to a frontend."""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import i64, mypyc_attr

from trilogue.core.lane import Lane, Piece


@mypyc_attr(allow_interpreted_subclasses=True)
class Consumer(ABC):
    """Frontends subclass it. The core asks for `room`, hands over pieces of runs, and is told later what became of them:
    `Queue.settle`, `Queue.give_back` or `Queue.reject` with the lane and ordinals of the piece."""

    def __init__(self, priority: i64 = 0, no_ack: bool = False, exclusive: bool = False, once: bool = False) -> None:
        self.priority: i64 = priority
        self.no_ack: bool = no_ack          # delivered is settled
        self.exclusive: bool = exclusive    # nobody else may consume from the queue meanwhile
        self.once: bool = once              # leaves after its first message (a `get`)

    @abstractmethod
    def room(self) -> i64:
        """How many messages it takes now."""

    @abstractmethod
    def deliver(self, lane: Lane, piece: Piece, count: i64) -> None:
        """The first `count` messages of `piece` are the consumer's, until it settles them or gives them back."""

    def nothing(self) -> None:
        """For one that leaves after its first message: there is none."""

    @abstractmethod
    def cancelled(self) -> None:
        """The queue is gone, or no longer served here. Nothing more will come, and nothing need be given back."""
