from __future__ import annotations

from tests.core.world import Loop, Writer
from trilogue.core.errors import StoreError
from trilogue.core.flusher import ACK_DELAY_S, Corked, Flushed, Flusher
from trilogue.core.ports import Journal, Promise, RoundResult


class Rounds(Journal):
    """A journal that answers when it is told to."""

    def __init__(self) -> None:
        self.staged = False
        self.rounds = 0

    def dirty(self) -> bool:
        return self.staged

    def begin_round(self) -> None:
        self.staged = False
        self.rounds += 1

    def expect(self, partition: int, offset: int) -> None: ...

    def open(self, partition: int, synced: bool) -> object: ...

    def partitions(self) -> list[int]:
        return []

    def drop(self, partition: int) -> None: ...

    def free_bytes(self) -> int:
        return 0


class Part(Flushed):
    def __init__(self, id: int, journal: Rounds) -> None:
        self.id = id
        self.bit = 0
        self.journal = journal
        self.calls: list[str] = []
        self.error: Exception | None = None

    def flush(self) -> None:
        if self.error is not None:
            raise self.error
        self.calls.append("flush")
        self.journal.staged = True

    def flushed(self) -> None:
        self.calls.append("flushed")

    def failed(self, reason: str) -> None:
        self.calls.append(reason)


class Noted(Promise):
    def __init__(self) -> None:
        self.count = 0
        self.reason = ""

    def kept(self) -> None:
        self.count += 1

    def broken(self, reason: str) -> None:
        self.reason = reason


class Cork(Corked):
    def __init__(self) -> None:
        self.count = 0

    def uncork(self) -> None:
        self.count += 1


def node(parts: int = 2, unsynced_max: int = 1_000) -> tuple[Flusher, Rounds, Loop, list[Part]]:
    loop, journal = Loop(), Rounds()
    return Flusher(journal, loop, unsynced_max), journal, loop, [Part(k, journal) for k in range(parts)]


def publish(flusher: Flusher, part: Part, writer: Writer, size: int = 10) -> None:
    flusher.need(part)
    writer.sequence += 1
    flusher.wait(writer, part, size)


def test_one_round_at_a_time_and_each_confirms_what_it_took() -> None:
    flusher, journal, loop, (one, other) = node()
    writer = Writer()
    publish(flusher, one, writer)
    loop.run()
    publish(flusher, one, writer)
    publish(flusher, other, writer)
    loop.run()
    assert (journal.rounds, writer.sure, one.calls) == (1, 0, ["flush"])
    flusher.round_done(RoundResult([]))
    assert (writer.sure, one.calls) == (1, ["flush", "flushed"])
    loop.run()
    flusher.round_done(RoundResult([]))
    assert (journal.rounds, writer.sure, other.calls) == (2, 3, ["flush", "flushed"])
    assert flusher.unsynced == 0


def test_who_waits_for_a_failed_partition_is_refused_and_nobody_else() -> None:
    flusher, _, loop, (one, other) = node()
    unlucky, lucky = Writer(), Writer()
    publish(flusher, one, unlucky)
    publish(flusher, other, unlucky)
    publish(flusher, other, lucky)
    loop.run()
    flusher.round_done(RoundResult([(0, "disk on fire")]))
    assert (one.calls, other.calls) == (["flush", "disk on fire"], ["flush", "flushed"])
    assert (unlucky.lost, unlucky.sure, lucky.lost, lucky.sure) == (["disk on fire"], 0, [], 1)


def test_more_partitions_than_bits_share_the_last_one() -> None:
    flusher, _, loop, parts = node(70)
    writers = [Writer() for _ in parts]
    for part, writer in zip(parts, writers, strict=True):
        publish(flusher, part, writer)
    loop.run()
    flusher.round_done(RoundResult([(69, "broken")]))
    assert all(writer.sure for writer in writers[:62])
    assert writers[69].lost == ["broken"]


def test_acknowledgements_wait_a_little_and_ride_with_others() -> None:
    flusher, journal, loop, (one, other) = node()
    flusher.lag(one)
    loop.run()
    assert journal.rounds == 0
    flusher.need(other)
    loop.run()
    flusher.round_done(RoundResult([]))
    loop.advance(int(ACK_DELAY_S * 1_000))
    assert (journal.rounds, one.calls) == (2, ["flush"])


def test_a_publisher_is_held_above_the_limit_and_let_go_at_half() -> None:
    flusher, _, loop, (one, _) = node(unsynced_max=100)
    writer = Writer()
    publish(flusher, one, writer, 60)
    loop.run()
    publish(flusher, one, writer, 60)
    assert writer.holding
    flusher.round_done(RoundResult([]))
    assert writer.holding                       # 60 are left
    loop.run()
    flusher.round_done(RoundResult([]))
    assert not writer.holding


def test_an_alarm_and_a_full_disk_hold_until_they_end() -> None:
    flusher, _, loop, (one, _) = node()
    writer, other = Writer(), Writer()
    flusher.block("disk low")
    publish(flusher, one, writer)
    loop.run()
    flusher.round_stalled("disk full")
    publish(flusher, one, other)
    flusher.unblock()
    assert (writer.holding, other.holding) == (True, True)
    flusher.round_done(RoundResult([]))
    assert (writer.holding, other.holding) == (False, False)


def test_what_was_asked_for_during_a_round_comes_after_the_next_one() -> None:
    flusher, _, loop, (one, _) = node()
    early, late = Noted(), Noted()
    flusher.need(one)
    flusher.call_after(early)
    loop.run()
    flusher.need(one)
    flusher.call_after(late)
    flusher.round_done(RoundResult([]))
    assert (early.count, late.count) == (1, 0)
    loop.run()
    flusher.round_done(RoundResult([]))
    assert late.count == 1


def test_a_promise_is_broken_by_any_partition_of_its_round() -> None:
    flusher, _, loop, (one, other) = node()
    promise = Noted()
    flusher.need(one)
    flusher.need(other)
    flusher.call_after(promise)
    loop.run()
    flusher.round_done(RoundResult([(1, "broken")]))
    assert (promise.count, promise.reason) == (0, "broken")


def test_a_partition_that_cannot_flush_keeps_nobody_from_it() -> None:
    flusher, journal, loop, (one, other) = node()
    unlucky, lucky = Writer(), Writer()
    publish(flusher, one, unlucky)
    publish(flusher, other, lucky)
    one.error = StoreError("cannot")
    loop.run()
    flusher.round_done(RoundResult([]))
    assert (unlucky.lost, unlucky.sure, lucky.sure, journal.rounds) == (["cannot"], 0, 1, 1)


def test_without_anything_to_write_nobody_waits() -> None:
    flusher, journal, loop, _ = node()
    noted, corked = Noted(), Cork()
    flusher.call_after(noted)
    flusher.cork(corked)
    loop.run()
    assert (noted.count, corked.count, journal.rounds) == (1, 1, 0)


def test_who_has_left_is_told_nothing() -> None:
    flusher, _, loop, (one, _) = node(unsynced_max=1)
    flying, waiting = Writer(), Writer()
    publish(flusher, one, flying)
    loop.run()
    publish(flusher, one, waiting)
    flusher.forget(flying)
    flusher.forget(waiting)
    flusher.round_done(RoundResult([]))
    loop.run()
    flusher.round_done(RoundResult([]))
    assert (flying.sure, waiting.sure, flusher.held) == (0, 0, [])
