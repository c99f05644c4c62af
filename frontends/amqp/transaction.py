"""What a channel in transaction mode did since the last commit: nothing of it has happened yet.

A commit does all of it in one turn of the loop, publishes first, so that in each shard it is one batch: all of it or nothing.
"""

from __future__ import annotations

from mypy_extensions import i64

from trilogue.core.message import Run
from trilogue.core.queue import Queue
from trilogue.core.unacked import Held
from trilogue.frontends.amqp.channel import RETURNED, SETTLED, Channel


class Publication:
    """A run on its way to the core. `keys`: further routing keys, from CC and BCC; `delay_ms`: not before that."""

    def __init__(self, channel: Channel, run: Run, bits: i64, keys: list[bytes], delay_ms: i64 = 0) -> None:
        self.channel: Channel = channel
        self.run: Run = run
        self.bits: i64 = bits
        self.keys: list[bytes] = keys
        self.delay_ms: i64 = delay_ms


class Answer:
    """Deliveries that were acknowledged, returned or rejected, with one method."""

    def __init__(self, how: i64, helds: list[Held]) -> None:
        self.how: i64 = how
        self.helds: list[Held] = helds


class Transaction:
    def __init__(self) -> None:
        self.publishes: list[Publication] = []
        self.answers: list[Answer] = []
        self.postponed: i64 = 0             # deliveries in them

    def postpone(self, how: i64, helds: list[Held]) -> None:
        self.answers.append(Answer(how, helds))
        for held in helds:
            self.postponed += held.count

    def take_back(self) -> list[Held]:
        """Rolled back: every delivery is unanswered again."""
        helds: list[Held] = []
        for answer in self.answers:
            helds.extend(answer.helds)
        self.answers = []
        self.postponed = 0
        return helds

    def answer_all(self, channel: Channel) -> None:
        """Now. Acknowledgements alone would not hurry to the disk, but a commit promises them."""
        flusher = channel.link.context.broker.flusher
        for answer in self.answers:
            if answer.how == SETTLED:
                channel.settle(answer.helds)
            elif answer.how == RETURNED:
                channel.give_back(answer.helds, True)
            else:
                channel.reject(answer.helds)
            for held in answer.helds:
                queue = held.lane.owner
                if isinstance(queue, Queue):
                    flusher.need(queue.home)
