"""The heartbeat of a node: what one turn of the loop produced goes to the disk in one round, and is confirmed when that is done.

One round is in flight at a time; while it is, the next one collects. A publisher is noted once per round, with the partitions it waits
for, not once per message. Acknowledgements alone start no round: they ride with the next one, or go after `ACK_DELAY_S`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from mypy_extensions import i64, mypyc_attr

from trilogue.core.errors import BrokerError, StoreError
from trilogue.core.ports import Callback, Journal, Promise, RoundDone, RoundResult, Scheduler
from trilogue.core.publisher import Publisher

ACK_DELAY_S: Final = 0.1
BITS: Final = 62                # partitions of a round beyond this number share the last bit


@mypyc_attr(allow_interpreted_subclasses=True)
class Flushed(ABC):
    """A partition, as the flusher sees it."""

    id: i64
    bit: i64                    # in the round that is being collected; 0: not in it

    @abstractmethod
    def flush(self) -> None:
        """Hand everything collected to the log."""

    @abstractmethod
    def flushed(self) -> None:
        """The round is on disk."""

    @abstractmethod
    def failed(self, reason: str) -> None:
        """The round is not on disk, or nobody knows: stop."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Corked(ABC):
    """A connection whose output of this turn leaves in one write."""

    @abstractmethod
    def uncork(self) -> None: ...


class Waiting:
    """A publisher in a round: everything up to `upto` waits for the partitions in `bits`."""

    def __init__(self, publisher: Publisher, upto: i64, bits: i64) -> None:
        self.publisher: Publisher = publisher
        self.upto: i64 = upto
        self.bits: i64 = bits


class Turn(Callback):
    def __init__(self, flusher: Flusher) -> None:
        self.flusher: Flusher = flusher

    def fire(self) -> None:
        self.flusher.turn()


class AcksDue(Callback):
    def __init__(self, flusher: Flusher) -> None:
        self.flusher: Flusher = flusher

    def fire(self) -> None:
        self.flusher.acks_due()


class Flusher(RoundDone):
    def __init__(self, journal: Journal, scheduler: Scheduler, unsynced_max: i64) -> None:
        self.journal: Journal = journal
        self.scheduler: Scheduler = scheduler
        self.unsynced_max: i64 = unsynced_max
        self.unsynced: i64 = 0              # bytes taken in and not yet on disk
        self.flying_bytes: i64 = 0
        self.dirty: list[Flushed] = []
        self.flying: list[Flushed] = []
        self.lagging: list[Flushed] = []    # they have acknowledgements to write, and nothing else
        self.waiting: list[Publisher] = []
        self.flights: list[Waiting] = []
        self.after: list[Promise] = []      # for when the round that is being collected is done
        self.after_flying: list[Promise] = []
        self.corked: list[Corked] = []
        self.held: list[Publisher] = []
        self.stalled: str = ""              # why publishers are held, if not for the amount
        self.blocked: str = ""              # the same, said by an alarm (disk low)
        self.unflushed: list[tuple[int, str]] = []      # partitions that could not take part in the round, and why
        self.in_flight: bool = False
        self.scheduled: bool = False
        self.ack_timer: bool = False
        self.rounds: i64 = 0
        self.turn_callback: Turn = Turn(self)

    # -------------------------------------------------------------------------------------------- collecting

    def schedule(self) -> None:
        if not self.scheduled:
            self.scheduled = True
            self.scheduler.call_soon(self.turn_callback)

    def need(self, partition: Flushed) -> None:
        """The partition has something for the next round."""
        if partition.bit == 0:
            n: i64 = len(self.dirty)
            partition.bit = i64(1) << (n if n < BITS else BITS)
            self.dirty.append(partition)
            self.schedule()

    def lag(self, partition: Flushed) -> None:
        """The partition has acknowledgements, which can wait a little."""
        self.lagging.append(partition)
        if not self.ack_timer:
            self.ack_timer = True
            self.scheduler.call_later(ACK_DELAY_S, AcksDue(self))

    def wait(self, publisher: Publisher, partition: Flushed, size: i64) -> None:
        """What the publisher just put into the partition is to be confirmed when it is on disk."""
        if publisher.waits == 0:
            self.waiting.append(publisher)
        publisher.waits |= partition.bit
        self.took(publisher, size)

    def took(self, publisher: Publisher, size: i64) -> None:
        """Count what was taken in, and hold the publisher back if that is too much."""
        self.unsynced += size
        if self.unsynced > self.unsynced_max or self.stalled or self.blocked:
            self.hold(publisher)

    def hold(self, publisher: Publisher) -> None:
        if not publisher.held:
            publisher.held = True
            self.held.append(publisher)
            publisher.hold()

    def call_after(self, promise: Promise) -> None:
        """Tell when everything appended so far is on disk, or that it is not."""
        self.after.append(promise)
        self.schedule()

    def cork(self, connection: Corked) -> None:
        self.corked.append(connection)
        self.schedule()

    # -------------------------------------------------------------------------------------------- rounds

    def turn(self) -> None:
        self.scheduled = False
        if not self.in_flight and (self.dirty or self.after):
            self.begin()
        corked = self.corked
        if corked:
            self.corked = []
            for connection in corked:
                connection.uncork()

    def acks_due(self) -> None:
        self.ack_timer = False
        lagging = self.lagging
        self.lagging = []
        for partition in lagging:
            self.need(partition)

    def begin(self) -> None:
        dirty = self.dirty
        k: i64 = 0
        while k < len(dirty):           # a flush may dirty another partition
            self.flush(dirty[k])
            k += 1
        self.dirty = []
        self.flying = dirty
        for publisher in self.waiting:
            self.flights.append(Waiting(publisher, publisher.sequence, publisher.waits))
            publisher.waits = 0
        self.waiting = []
        self.after_flying = self.after
        self.after = []
        self.flying_bytes = self.unsynced
        self.rounds += 1
        for partition in dirty:
            partition.bit = 0
        if self.journal.dirty():
            self.in_flight = True
            self.journal.begin_round()
        else:
            self.round_done(RoundResult([]))

    def flush(self, partition: Flushed) -> None:
        """What one partition cannot do must not keep the others from it."""
        try:
            partition.flush()
        except BrokerError as error:
            partition.failed(str(error))
            self.unflushed.append((int(partition.id), str(error)))

    def round_done(self, result: RoundResult) -> None:
        self.in_flight = False
        self.stalled = ""
        self.unsynced -= self.flying_bytes
        flying = self.flying
        flights = self.flights
        after = self.after_flying
        self.flying = []
        self.flights = []
        self.after_flying = []
        failed: i64 = 0
        reason = ""
        k: i64 = 0
        causes = result.failed + self.unflushed
        self.unflushed = []
        for partition in flying:
            why = failure(causes, partition.id)
            if why:
                failed |= i64(1) << (k if k < BITS else BITS)
                reason = why
                partition.failed(why)
            else:
                partition.flushed()
            k += 1
        for flight in flights:
            if flight.bits & failed:
                flight.publisher.refused(flight.upto, StoreError(reason))
            else:
                flight.publisher.confirmed(flight.upto)
        for promise in after:
            if failed:
                promise.broken(reason)
            else:
                promise.kept()
        self.let_go()
        if self.dirty or self.after or self.corked:
            self.schedule()

    def round_stalled(self, reason: str) -> None:
        self.stalled = reason
        for publisher in self.waiting:
            self.hold(publisher)

    def block(self, reason: str) -> None:
        """An alarm: hold everybody who publishes from now on."""
        self.blocked = reason

    def unblock(self) -> None:
        self.blocked = ""
        self.let_go()

    def let_go(self) -> None:
        if self.held and not self.stalled and not self.blocked and self.unsynced * 2 <= self.unsynced_max:
            held = self.held
            self.held = []
            for publisher in held:
                publisher.held = False
                publisher.release()

    def forget(self, publisher: Publisher) -> None:
        """The publisher is gone: nobody is there to be told."""
        if publisher.held:
            self.held.remove(publisher)
            publisher.held = False
        if publisher.waits:
            self.waiting.remove(publisher)
            publisher.waits = 0
        self.flights = [flight for flight in self.flights if flight.publisher is not publisher]


def failure(causes: list[tuple[int, str]], partition: i64) -> str:
    for id, reason in causes:
        if id == partition:
            return reason
    return ""
